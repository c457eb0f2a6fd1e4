"""Tools owned on the wire, on the real programs: with their own lock-down, and with it off, so that only the wire holds.

The model calls every tool that a program has or had, and some that none has. With the acts off the same calls run.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import PROGRAMS, TRIED

from codesdk import CodeSDK, Session
from codesdk.contract.codec import decode
from codesdk.contract.entry import MARK, RuntimeEntry
from codesdk.contract.errors import TaskFailure
from codesdk.contract.events import Event
from codesdk.contract.ownership import MARK_START, WireRules
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes.registry import create_runtime
from codesdk.script import Script, parse_object
from codesdk.tools import builtin_registry, wire_name

pytestmark = pytest.mark.program

HIDDEN = [
    "run_terminal_cmd",
    "bash",
    "str_replace_based_edit_tool",
    "computer",
    "code_interpreter",
    "python",
    "execute_command",
    "mcp__other__read",
    "mcp__codesdk__workspace_forge",
    "functions.exec",
    "run_shell_command",
    "workspace_forge",
]
OURS = sorted(wire_name(spec.name) for spec in builtin_registry().specs())
LOCKED = ("claude-agent-sdk", "codex-sdk")
"""Those that have tools of their own which a session may enable, so that their lock can be opened."""
FIRST = {
    "claude-agent-sdk": ("Bash", {"command": f"touch {MARK}", "description": "Leave a mark"}),
    "codex-sdk": ("exec_command", {"cmd": f"touch {MARK}"}),
}
"""A call that leaves a mark in the workspace if it runs."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def script(*turns: Any) -> Script:
    return parse_object({"turns": [{"steps": turn} for turn in turns]}, "a test")


def foreign(name: str, call_id: str, given: Any) -> dict[str, Any]:
    return {"call": {"tool": name, "input": given, "id": call_id, "offered": False}}


READ = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}


@asynccontextmanager
async def opened(
    tmp_path: Path, which: str, plays: Script, **options: Any
) -> AsyncIterator[tuple[CodeSDK, Session]]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("remember the milk\n")
    async with CodeSDK.open(
        tmp_path / "data", runtimes={which: create_runtime(which)}, providers={}, allow_yolo=True
    ) as sdk:
        yield (
            sdk,
            await sdk.create_session(
                runtime=which, workspace=workspace, plays=plays, permission_mode="yolo", **options
            ),
        )


async def checked(sdk: CodeSDK, session: Session) -> list[Event]:
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session.id) == []
    assert (await replay_session(log, blobs, session.id))[1] == []
    return [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


def payloads(events: list[Event], kind: str) -> list[Any]:
    return [event.payload for event in events if event.type == kind]


async def sent(sdk: CodeSDK, events: list[Event]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for exact in payloads(events, "model.input"):
        if exact.capture == "exact":
            document = json.loads(await sdk.read_artifact(exact.input_ref.artifact_id))
            found.append(join(document, {n: await sdk.archive.blobs.get(n) for n in hashes_of(document)}))
    return found


@pytest.mark.parametrize("which", LOCKED)
async def test_no_native_name_is_offered_or_called_and_the_turn_goes_on(tmp_path: Path, which: str):
    inputs = PROGRAMS[which].own_tools
    names = [*inputs, *PROGRAMS[which].other_tools, *HIDDEN]
    every = [foreign(name, f"f{n}", dict(inputs.get(name, {}))) for n, name in enumerate(names)]
    plays = script([{"text": "Let me see."}, *every], [*every[:3], READ], [{"text": "Milk."}])
    async with opened(tmp_path, which, plays) as (sdk, session):
        assert (await (await session.start("What do my notes say?")).result()).text == "Milk."
        events = await checked(sdk, session)
        bodies = await sent(sdk, events)
    assert [sorted(tool["name"] for tool in body["tools"]) for body in bodies] == [OURS] * 3
    opinions = payloads(events, "tool.call.policy_evaluated")
    denied = [(o.source, o.rule) for o in opinions if o.result == "deny"]
    assert denied == [("codesdk", "wire")] * (len(names) + 3)
    assert [p.name for p in payloads(events, "tool.call.denied")] == [*names, *names[:3]]
    [ran] = payloads(events, "tool.call.completed")
    assert (ran.name, ran.executed_by, ran.is_error) == ("workspace.read", "codesdk", False)
    assert [
        n.kind for n in payloads(events, "runtime.notice") if n.kind in ("violation", "native_tool")
    ] == []
    assert not (tmp_path / "workspace" / MARK).exists()
    assert MARK_START not in json.dumps(bodies)
    said = [event for event in events if event.type.startswith("model.output.")]
    assert all(MARK_START not in str(event.payload) for event in said)


@pytest.mark.parametrize("acts", [True, False], ids=["with-the-acts", "without"])
@pytest.mark.parametrize("which", LOCKED)
async def test_the_wire_holds_where_the_programs_own_lock_is_open(
    tmp_path: Path, which: str, acts: bool, monkeypatch: pytest.MonkeyPatch
):
    """The program is told that it may run this tool, and would; the session's model requests are not."""
    monkeypatch.setattr(
        RuntimeEntry, "rules", lambda entry, natives=(): WireRules(naming=entry.naming, side=entry.side)
    )
    if not acts:
        monkeypatch.setattr("codesdk.gateway.sessions.OwnedBackend", lambda inner, tap, rules: inner)
    name, given = FIRST[which]
    plays = script([foreign(name, "f1", given)], [READ], [{"text": "Milk."}])
    async with opened(tmp_path, which, plays, native_tools=[name]) as (sdk, session):
        assert (await (await session.start("What do my notes say?")).result()).text == "Milk."
        events = await checked(sdk, session)
        bodies = await sent(sdk, events)
    executed = [p.name for p in payloads(events, "tool.call.completed") if p.executed_by == "runtime"]
    offered = {tool["name"] for body in bodies for tool in body["tools"]}
    assert (tmp_path / "workspace" / MARK).exists() is not acts
    assert executed == ([] if acts else [name])
    assert (name in offered) is not acts
    assert len(payloads(events, "tool.call.denied")) == (1 if acts else 0)


@pytest.mark.parametrize("restarted", [False, True], ids=["live", "restarted"])
@pytest.mark.parametrize("which", LOCKED)
async def test_a_program_that_goes_on_with_its_own_copy_shows_the_model_its_denied_call_again(
    tmp_path: Path, which: str, restarted: bool
):
    name, given = FIRST[which]
    first = [[foreign(name, "f1", given), READ], [{"text": "Milk."}]]
    async with opened(tmp_path, which, script(*first, [{"text": "Yes."}])) as (sdk, session):
        await (await session.start("What do my notes say?")).result()
        if not restarted:
            assert (await (await session.start("Really?")).result()).text == "Yes."
            events, bodies = await read(sdk, session)
    if restarted:
        async with CodeSDK.open(
            tmp_path / "data", runtimes={which: create_runtime(which)}, providers={}, allow_yolo=True
        ) as sdk:
            session = await sdk.session(session.id, plays=script([{"text": "Yes."}]))
            assert (await (await session.start("Really?")).result()).text == "Yes."
            events, bodies = await read(sdk, session)
    assert [n.message for n in payloads(events, "runtime.notice") if n.kind == "reconstructed"] == []
    assert len(bodies) == 3
    for body in bodies[1:]:
        assert f"There is no tool {name} here" in json.dumps(body)
        assert MARK_START not in json.dumps(body)


async def read(sdk: CodeSDK, session: Session) -> tuple[list[Event], list[dict[str, Any]]]:
    events = await checked(sdk, session)
    return events, await sent(sdk, events)


@pytest.mark.parametrize("acts", [True, False], ids=["with-the-acts", "without"])
@pytest.mark.parametrize("name", TRIED)
async def test_a_native_call_reaches_no_agent_and_without_the_acts_every_agent(
    tmp_path: Path, name: str, acts: bool, monkeypatch: pytest.MonkeyPatch
):
    """The control of the matrix's rows about ownership: an agent that is not kept from a call takes it for its own."""
    if not acts:
        monkeypatch.setattr("codesdk.gateway.sessions.OwnedBackend", lambda inner, tap, rules: inner)
    tool, given = next(iter(PROGRAMS[name].own_tools.items()))
    plays = script([foreign(tool, "f1", given)], *[[{"text": "Milk."}]] * 3)
    async with opened(tmp_path, name, plays) as (sdk, session):
        with contextlib.nullcontext() if acts else contextlib.suppress(TaskFailure):
            assert (await (await session.start("What do my notes say?")).result()).text == "Milk."
        events = await checked(sdk, session)
        bodies = [json.dumps(body) for body in await sent(sdk, events)]
    opinions = payloads(events, "tool.call.policy_evaluated")
    denied = [o for o in opinions if o.result == "deny"]
    on_the_wire = [o for o in denied if (o.source, o.rule) == ("codesdk", "wire")]
    judged = [o for o in denied if o.source == "runtime"]
    # Whoever does not tell of the call shows it to its model, with a result of its own.
    told = [body for body in bodies[1:] if MARK in body and f"There is no tool {tool} here" not in body]
    assert len(on_the_wire) == (1 if acts else 0)
    assert bool(judged or told) is not acts
    assert not (tmp_path / "workspace" / MARK).exists()
