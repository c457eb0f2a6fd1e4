"""A workspace that was made to take the agent over: none of it runs, and what reaches the model is what was captured."""

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import PROGRAMS, TRIED
from tests.runtimes.reading import events_of, is_exact, request_text

from codesdk import CodeSDK, SessionSettings
from codesdk.contract.canonical import content_hash
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.runtimes.claude import options as claude
from codesdk.script import parse_object
from codesdk.testing.traps import lay_traps

CAPTURES = {
    name: PROGRAMS[name].instructions.captured[0] for name in TRIED if PROGRAMS[name].instructions.captured
}
"""The programs for which the workspace's instruction file can be captured, and its name."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Seen(NamedTuple):
    """What a task in the hostile workspace led to: what the model was told, and what was listed of it."""

    told: list[str]
    compiled: dict[str, Any]
    listed: list[dict[str, Any]]
    ran: list[str]
    """The traps that sprang."""


async def work_in(tmp_path: Path, runtime: str, **settings: Any) -> Seen:
    workspace, marks = tmp_path / "workspace", tmp_path / "marks"
    workspace.mkdir()
    lay_traps(workspace, marks)
    (workspace / "notes.txt").write_text("remember the milk\n")
    script = parse_object(
        {
            "turns": [
                {"steps": [{"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}]},
                {"steps": [{"text": "It says milk."}]},
            ]
        },
        "hostile",
    )
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=runtime,
            workspace=workspace,
            plays=script,
            permission_mode="auto",
            settings=SessionSettings(**settings),
        )
        assert (await (await session.start("What does my note say?")).result()).text == "It says milk."
        inputs = [event for event in await events_of(sdk, session) if event.type == "model.input"]
        documents = [
            json.loads(await sdk.read_artifact(event.payload.implicit_sources_ref.artifact_id))
            for event in inputs
        ]
        told = [await request_text(sdk, event) for event in inputs if is_exact(event)]
    listed = [source for document in documents[1:] for source in document["sources"]]
    assert len(told) == 2
    return Seen(told, documents[0], listed, names_in(marks))


@pytest.mark.parametrize("runtime", TRIED)
async def test_nothing_in_a_hostile_workspace_runs_or_reaches_the_model(tmp_path: Path, runtime: str):
    seen = await work_in(tmp_path, runtime)
    assert not [text for text in seen.told if "BANANA" in text or "evil" in text]
    assert seen.ran == []
    assert not [source for source in seen.listed if source["origin"].startswith("file:")]


@pytest.mark.parametrize(("runtime", "name"), CAPTURES.items(), ids=str)
async def test_what_is_captured_is_the_one_instruction_file_as_text_and_on_the_list(
    tmp_path: Path, runtime: str, name: str
):
    seen = await work_in(tmp_path, runtime, implicit_sources="capture")
    text = (tmp_path / "workspace" / name).read_text().strip()
    assert f"So says {name}." in text
    for told in seen.told:
        assert told.count("BANANA") == 1, "it is there, and none of the others is"
        assert text in told
    assert not [told for told in seen.told if "evil" in told]
    assert seen.ran == []
    same = {
        "origin": f"file:workspace/{name}",
        "kind": "text",
        "extent": "whole",
        "size_bytes": len(text.encode()),
        "content_hash": content_hash(text.encode()),
    }
    assert seen.compiled == {"sources": [{**same, "precedence": 1}], "left_out": []}
    files = [source for source in seen.listed if source["origin"].startswith("file:")]
    assert [{key: source[key] for key in same} for source in files] == [same, same]


@pytest.mark.parametrize("runtime", CAPTURES)
async def test_a_link_is_not_captured_and_said_to_be_left_out(tmp_path: Path, runtime: str):
    name = CAPTURES[runtime]
    workspace, secret = tmp_path / "ws", tmp_path / "secret.md"
    workspace.mkdir()
    secret.write_text("The word is BANANA.\n")
    (workspace / name).symlink_to(secret)
    script = parse_object({"turns": [{"steps": [{"text": "Hello."}]}]}, "link")
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=runtime,
            workspace=workspace,
            plays=script,
            settings=SessionSettings(implicit_sources="capture"),
        )
        assert (await (await session.start("Hello?")).result()).text == "Hello."
        [compiled, exact] = [event for event in await events_of(sdk, session) if event.type == "model.input"]
        listed = json.loads(await sdk.read_artifact(compiled.payload.implicit_sources_ref.artifact_id))
        told = await request_text(sdk, exact)
    assert "BANANA" not in told
    assert listed == {
        "sources": [],
        "left_out": [
            {
                "origin": f"file:workspace/{name}",
                "reason": f"It was not read: {name} is a symbolic link; symbolic links are not followed.",
            }
        ],
    }


@pytest.mark.parametrize("runtime", CAPTURES)
async def test_a_changed_instruction_file_is_captured_again_with_the_next_task(tmp_path: Path, runtime: str):
    name = CAPTURES[runtime]
    workspace = tmp_path / "ws"
    workspace.mkdir()
    script = parse_object({"turns": [{"steps": [{"text": f"{n}."}]} for n in ("One", "Two", "Three")]}, "new")
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=runtime,
            workspace=workspace,
            plays=script,
            settings=SessionSettings(implicit_sources="capture"),
        )
        for text in ("Use tabs here.\n", "Use blanks here.\n", None):
            (workspace / name).write_text(text) if text else (workspace / name).unlink()
            await (await session.start("Go on.")).result()
        told = [await request_text(sdk, event) for event in await events_of(sdk, session) if is_exact(event)]
    assert [("Use tabs" in text, "Use blanks" in text) for text in told] == [
        (True, False),
        (False, True),
        (False, False),
    ]


async def test_the_same_workspace_takes_over_a_claude_that_is_left_alone(tmp_path: Path):
    """The control: what the tests above find nothing of does run in an agent that nobody locked down."""
    program = claude.bundled()
    assert program is not None
    workspace, marks, home = tmp_path / "workspace", tmp_path / "marks", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    lay_traps(workspace, marks)
    script = parse_object({"turns": [{"steps": [{"text": "Hello."}]}], "loop": True}, "hello")
    async with Gateway() as gateway:
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": gateway.admit(ScriptedModel(script)),
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        running = await asyncio.create_subprocess_exec(
            program.path, "-p", "Say hello.", cwd=workspace, env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(120):
            await running.communicate()
    assert {"claude-SessionStart", "claude-UserPromptSubmit"} <= set(names_in(marks))
