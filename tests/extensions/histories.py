"""Random handlers and what is expected of them: written as extensions, worked with, and compared with what they noted."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from hypothesis import strategies as st
from tests.extensions.rig import Extensions, session_in, settle

from codesdk import CodeSDK
from codesdk.contract import events as ev
from codesdk.contract.codec import decode
from codesdk.engine import verify_session
from codesdk.extensions.worker import Hosting

Moment = Literal[
    "event",
    "call",
    "calling",
    "called",
    "action",
    "acted",
    "dispatched",
    "keeping",
    "kept",
    "reloading",
    "reloaded",
    "never",
]
SOURCE = """
import asyncio, threading
from tests.extensions.probe import noting
note = noting({notes!r})
KINDS = {kinds!r}
LATE = {{}}
async def later(tools, session, gate):
    await gate.wait()  # for the next event of the session: by then the handler has ended
    tools.logger.warning("a late word")
    try:
        await tools.get_session_settings(session)
        note(["late", "it did something"])
    except Exception as error:
        note(["late", type(error).__name__])
ACTIONS = {{
    "approve": ("approval.decide", {{"decision": "approve"}}),
    "deny": ("approval.decide", {{"decision": "deny"}}),
    "steer": ("turn.steer.create", {{"message": "Be brief."}}),
    "upsert": ("transcript.upsert", {{"id": {name!r}, "text": "seen"}}),
    "queue": ("queue.enqueue", {{"type": {name!r}}}),
}}
async def behave(kind, event, tools):
    session = event.payload["session"]["id"]
    for gate, task in LATE.pop(session, []):
        gate.set()
        await task
    if kind == "raise": raise ValueError("no")
    if kind == "exit": raise SystemExit(1)
    if kind == "hang": await asyncio.Event().wait()
    if kind == "block": threading.Event().wait({block!r})
    if kind == "nonsense": return object()
    if kind == "fake": return {{"kind": "action_result", "action_type": "a", "status": "performed"}}
    if kind == "reads": return [event.type, len(await tools.get_session_settings(session))]
    if kind == "late":
        gate = asyncio.Event()
        LATE.setdefault(session, []).append((gate, asyncio.create_task(later(tools, session, gate))))
    if kind in ACTIONS:
        name, payload = ACTIONS[kind]
        return {{"kind": "action_request", "action_type": name, "payload": payload}}
    return kind
def handler(place, kind):
    async def handle(event, tools):
        if kind not in {stalling!r}:  # on a busy machine its time may be over before it could note anything
            note([event.type, event.correlation_id, {name!r}, place, {generation!r}])
        return await behave(kind, event, tools)
    return handle
def register(registry):
    for place, (name, kind, priority) in enumerate(KINDS):
        registry.on(name, handler(place, kind), priority, 20 if kind in {stalling!r} else 60_000)
    registry.job({name!r}, lambda event, tools: None)
"""
TYPES = ("task.started", "approval.requested", "turn.completed")
STALLING = ("hang", "block")
"""Those whose time is over before they return: one waits, the other keeps its thread from doing anything else."""
FAILING = ("raise", "exit", "nonsense", "fake", *STALLING)
ACTING = {
    "approve": ("approval.requested",),
    "deny": ("approval.requested",),
    "steer": ("task.started", "approval.requested"),
    "upsert": TYPES,
    "queue": TYPES,
}
"""Those that ask for an action, and the events for which it can be performed."""
BEHAVIOURS = [*FAILING, "reads", "late", *ACTING, "fine"]
_DECLARED = ["approval.decide", "turn.steer.create", "transcript.upsert", "queue.enqueue"]
_BLOCKED_S = 0.1
"""How long a blocked thread stays so: nobody can end it, and a dispatch waits a second for it. A process is ended."""
POLICY = """
[[rules]]
id = "ask"
result = "ask"
tool = "workspace.write"
answer_by = ["extension:a", "extension:b", "extension:c"]
"""
Chosen = dict[str, list[tuple[str, str, int]]]
"""The handlers of each extension: the type of their event, what they do, and their priority."""

handlers = st.tuples(st.sampled_from(TYPES), st.sampled_from(BEHAVIOURS), st.sampled_from([1, 100, 200]))
sets = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(handlers, max_size=4), min_size=1)
hostings = st.sampled_from(["in_process", "subprocess"])


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a process: how many tasks it is given, whether it reloads meanwhile, and when it is killed."""

    hosting: Hosting
    reloads: bool
    tasks: int
    moment: Moment
    count: int


class Place(NamedTuple):
    """A handler where it is called."""

    module: str
    place: int
    kind: str


def write(ext: Extensions, chosen: Chosen, generation: int = 0) -> None:
    block = _BLOCKED_S if ext.hosting == "in_process" else None
    for name, kinds in chosen.items():
        source = SOURCE.format(
            kinds=kinds,
            name=name,
            notes=str(ext.notes),
            generation=generation,
            block=block,
            stalling=STALLING,
        )
        ext.write(name, source, actions=_DECLARED)


def expected(chosen: Chosen, event_type: str) -> list[Place]:
    """Return the handlers of a type of event in the order of document 001."""
    ordered = sorted(
        (priority, module, place, kind)
        for module, kinds in chosen.items()
        for place, (name, kind, priority) in enumerate(kinds)
        if name == event_type
    )
    return [Place(module, place, kind) for _, module, place, kind in ordered]


def noting_order(chosen: Chosen, event_type: str) -> list[tuple[str, int]]:
    """Return those of them that note that they were called."""
    return [(one.module, one.place) for one in expected(chosen, event_type) if one.kind not in STALLING]


def acting(chosen: Chosen, event_type: str) -> list[Place]:
    """Return the handlers of a type of event whose actions can be performed, in order. The first of them wins."""
    return [one for one in expected(chosen, event_type) if event_type in ACTING.get(one.kind, ())]


def answering(chosen: Chosen) -> list[tuple[str, str]]:
    """Return who may have answered a question over kills, and how.

    That is the winner. One that steers may find its task dead after a kill, so that it does not win any more; then the
    next one does.
    """
    found: list[tuple[str, str]] = []
    for one in acting(chosen, "approval.requested"):
        if one.kind in ("approve", "deny"):
            found.append((one.module, one.kind))
        if one.kind != "steer":
            break
    return found


def noted(path: Path) -> list[list[Any]]:
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def alone(hosting: Hosting, *sets: Chosen) -> bool:
    """Return whether sessions should come one by one.

    A handler beside one that hung in its process is called again, and one beside a blocked thread is passed over.
    """
    stalls = STALLING if hosting == "subprocess" else ("block",)
    return any(kind in stalls for chosen in sets for kinds in chosen.values() for _, kind, _ in kinds)


def passes(
    lines: Sequence[list[Any]], *, repeated: bool = False
) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """Return who was called for each event, in order. `repeated`: the same one again counts once."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for name, correlation, module, place, _ in (line for line in lines if line[0] != "late"):
        called = found.setdefault((name, correlation), [])
        if not (repeated and called and called[-1] == (module, place)):
            called.append((module, place))
    return found


def check_life(chosen: Chosen, hosting: Hosting, lines: Sequence[list[Any]], *, whole: bool) -> None:
    """Check the order of what one life noted. If it was killed, it may have stopped anywhere, but not jumped."""
    called = passes(lines, repeated=alone(hosting, chosen))
    for (name, _), handled in called.items():
        wanted = noting_order(chosen, name)
        assert handled == (wanted if whole else wanted[: len(handled)])
    last: dict[str, int] = {}
    for _, correlation in called:
        session, _, seq = correlation.rpartition(":")
        assert last.get(session, 0) < int(seq), "the events of a session come in its order, each once"
        last[session] = int(seq)
    assert {line[1] for line in lines if line[0] == "late"} <= {"HandlerEnded"}


async def work(sdk: CodeSDK, home: Path, tasks: int) -> None:
    """Run sessions side by side. A person answers what no extension does, and the log stays sound."""

    async def one() -> None:
        session = await session_in(sdk, home)
        task = await session.start("Go.")
        async for event in task.events():
            if isinstance(event.payload, ev.ApprovalRequested):
                await settle(sdk)
                rows = await sdk.archive.approvals(session_id=session.id)
                if any(row.approval_id == event.payload.approval_id for row in rows):
                    await task.approve(event.payload.tool_call_id or "")
        await settle(sdk)

    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(one())


class Logged(NamedTuple):
    """What the logs say: each event that handlers are told of, and each answer by how it was given and by whom."""

    told: set[tuple[str, str]]
    answers: list[list[tuple[str, str, str]]]


async def logged(sdk: CodeSDK) -> Logged:
    """Read all sessions, and check that their logs are sound."""
    found = Logged(set(), [])
    log, blobs = sdk.archive.log, sdk.archive.blobs
    for row in await sdk.archive.sessions():
        assert await verify_session(log, blobs, row.session_id) == []
        answers: dict[str, list[tuple[str, str, str]]] = {}
        for frame in await log.read(row.session_id, 0, 10_000):
            event = decode(frame.data)
            ended = event.type in ("task.failed", "task.completed", "task.stopped")
            name = "turn.completed" if ended else event.type
            if name in TYPES:
                found.told.add((name, f"{row.session_id}:{event.seq}"))
            if isinstance(event.payload, ev.ApprovalRequested):
                answers.setdefault(event.payload.approval_id, [])
            if isinstance(event.payload, ev.ApprovalAnswered):
                by = event.payload.by
                answers[event.payload.approval_id].append((by.kind, by.id or "", event.payload.decision))
        found.answers.extend(answers.values())
    return found
