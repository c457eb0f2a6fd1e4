"""What `runtime_config` says has effect on the exact request of a real program; what a runtime does not know is refused."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.acp.rig import opened, pretending
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import TRIED

from codesdk import CodeSDK, InvalidRequest, Session, SessionSettings, TaskFailure
from codesdk.contract.codec import decode
from codesdk.contract.options import option_table
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes import create_runtime, entries
from codesdk.script import parse_object

DOCS = Path(__file__).parents[2] / "docs"
HELLO = parse_object({"turns": [{"steps": [{"text": "Hello."}]}], "loop": True}, "a test")


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


async def requests(sdk: CodeSDK, session: Session) -> list[dict[str, Any]]:
    """Return the exact requests of a session, as its program sent them."""
    found: list[dict[str, Any]] = []
    async for frame in sdk.archive.frames(session.id):
        payload: Any = decode(frame.data).payload
        if getattr(payload, "capture", None) == "exact":
            document = json.loads(await sdk.read_artifact(payload.input_ref.artifact_id))
            found.append(join(document, {n: await sdk.archive.blobs.get(n) for n in hashes_of(document)}))
    return found


async def said(runtime: str, model: str | None, tmp_path: Path, **config: Any) -> dict[str, Any]:
    """Return the first request of a session with this `runtime_config`."""
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=runtime,
            model=model,
            workspace=tmp_path,
            plays=HELLO,
            settings=SessionSettings(runtime_config=config),
        )
        await (await session.start("Hi")).result()
        return (await requests(sdk, session))[0]


PROMPT = "You are under test."
EFFECTS: dict[str, dict[str, Any]] = {
    # Neither program would ask for low by itself: codex's default for this model is medium, claude's is high.
    "claude-agent-sdk": {"effort": "low", "system_prompt": PROMPT},
    "codex-sdk": {"effort": "low", "system_prompt": PROMPT},
    "opencode-server": {"max_output_tokens": 777, "provider": "anthropic", "system_prompt": PROMPT},
    "minicode": {
        "context_tokens": 1_000,
        "effort": "low",
        "max_output_tokens": 777,
        "max_steps": 1,
        "provider": "openai-compatible",
        "system_prompt": PROMPT,
    },
    **{name: {"system_prompt": PROMPT} for name in TRIED if name.startswith(("acp:", "gemini"))},
}
"""Every key that a runtime knows, with a value that it would not take by itself."""
MODELS = {"claude-agent-sdk": "claude-opus-4-6", "opencode-server": "claude-opus-4-6"}
SEEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "effort": lambda body: (
        body.get("reasoning_effort")
        or (body.get("reasoning") or body.get("output_config") or {}).get("effort")
    ),
    "system_prompt": lambda body: PROMPT if PROMPT in json.dumps(body) else None,
    "max_output_tokens": lambda body: (
        body.get("max_tokens") or body.get("max_completion_tokens") or body.get("max_output_tokens")
    ),
    "provider": lambda body: (
        "anthropic" if "system" in body else "openai-compatible" if "messages" in body else None
    ),
}
"""Where the exact request shows a key."""


@pytest.mark.parametrize("name", EFFECTS)
async def test_every_key_that_a_program_knows_reaches_the_model(name: str, tmp_path: Path):
    config = EFFECTS[name]
    assert sorted(config) == sorted(entries()[name].options.__struct_fields__), "none is left out"
    shown = {key: value for key, value in config.items() if key in SEEN}
    body = await said(name, MODELS.get(name), tmp_path, **shown)
    assert {key: SEEN[key](body) for key in shown} == shown


def test_no_runtime_is_left_out():
    shown = {
        *EFFECTS,
        "acp",
        "scripted",
    }  # their keys are a command that is started, and a script that is played
    whole = {name for name, entry in entries().items() if entry.program is None or name in TRIED}
    assert whole <= shown


@pytest.mark.parametrize("name", ["claude-agent-sdk", "codex-sdk"])
async def test_a_system_prompt_takes_the_place_of_every_other(name: str, tmp_path: Path):
    body = await said(name, MODELS.get(name), tmp_path, system_prompt=PROMPT)
    told = body["system"][1:] if "system" in body else body["input"][0]["content"]
    assert [part["text"] for part in told] == [PROMPT]


async def test_minicode_asks_no_more_often_and_sends_no_more_than_it_may(tmp_path: Path):
    (tmp_path / "long.txt").write_text("a line of the file\n" * 400)
    reads = {"call": {"tool": "workspace.read", "input": {"path": "long.txt"}}}
    plays = parse_object({"turns": [{"steps": [reads]}], "loop": True}, "a test")
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        for steps, tokens in ((1, None), (4, None), (4, 1_000)):
            config = {"max_steps": steps} | ({"context_tokens": tokens} if tokens else {})
            session = await sdk.create_session(
                runtime="minicode",
                workspace=tmp_path,
                permission_mode="auto",
                plays=plays,
                settings=SessionSettings(runtime_config=config),
            )
            with contextlib.suppress(TaskFailure):
                await (await session.start("Hi")).result()
            events = [decode(frame.data).payload async for frame in sdk.archive.frames(session.id)]
            assert len(await requests(sdk, session)) == steps
            shortened = [p for p in events if getattr(p, "kind", None) == "context_shortened"]
            assert bool(shortened) is bool(tokens)


async def test_the_command_the_row_and_the_system_prompt_of_any_agent_have_effect(tmp_path: Path):
    """The agent says what its environment has: what the row puts there, from what the session said."""
    environment = {"OPENAI_BASE_URL": "${model_url}/v1", "SHOWN": "by the row: ${instructions}"}
    async with opened(
        tmp_path, pretending("shows"), system_prompt=PROMPT, launch={"environment": environment}
    ) as session:
        assert (await (await session.start("Hi")).result()).text == f"by the row: {PROMPT}"


async def test_an_effort_that_the_model_does_not_have_is_refused_before_codex_begins(tmp_path: Path):
    with pytest.raises(TaskFailure) as refused:
        await said("codex", "gpt-5.5", tmp_path, effort="max")
    assert (refused.value.code, refused.value.message) == (
        "INVALID_REQUEST",
        "The model gpt-5.5 has no effort max. It has: low, medium, high, xhigh.",
    )


@pytest.mark.parametrize("name", entries())
async def test_what_a_runtime_does_not_know_is_refused_before_anything_is_stored(name: str, tmp_path: Path):
    known = ", ".join(entries()[name].options.__struct_fields__)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"no_such": 1}, "object contains unknown field `no_such`"),
        ({entries()[name].options.__struct_fields__[0]: 5}, "got `int`"),
    ]
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        for config, words in wrong:
            with pytest.raises(InvalidRequest) as refused:
                await sdk.create_session(
                    runtime=name, workspace=tmp_path, settings=SessionSettings(runtime_config=config)
                )
            message = refused.value.message
            assert message.startswith(f"The runtime {name} cannot take this runtime_config: ")
            assert message.endswith(f"{words}. It takes {known}.")
        assert await sdk.sessions() == []


@pytest.mark.parametrize("name", entries())
def test_the_adapter_has_the_options_of_its_entry_and_its_page_lists_them(name: str):
    entry = entries()[name]
    assert create_runtime(name).options is entry.options
    assert entry.docs is not None
    assert option_table(entry.options) in (DOCS / entry.docs).read_text()
