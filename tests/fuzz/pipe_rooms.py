"""Rooms for the pipes of programs that CodeSDK is asked by: wrapped ones, those that it decides for, and extensions."""

import asyncio
import json
import logging
import tomllib
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.fuzz.rooms import Child, Room, _refuse_bugs

from codesdk.channel.framing import MAX_LINE_BYTES, Candidate, Framing, Overlong, Piece
from codesdk.channel.limits import ArbiterLimits
from codesdk.channel.process import _OVERLONG
from codesdk.channel.producer import Channel, ToolDenied
from codesdk.channel.protocol import MARKER, ToolRequest, read_event
from codesdk.channel.runner import Launch, ParseFailed
from codesdk.channel.scripted import ScriptedRunner, ScriptedSession
from codesdk.channel.wrapped import WrappedProgram
from codesdk.contract.capabilities import OF_WRAPPED
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.runtime import Host, RuntimeTask, TaskInput
from codesdk.extensions import outcomes
from codesdk.extensions.example import MANIFEST
from codesdk.extensions.frames import Handler
from codesdk.extensions.manifest import check_fit, read_manifest
from codesdk.extensions.outcomes import (
    AgentRuntimeEvent,
    AgentRuntimeProfile,
    EnqueueResult,
    HandlerTimeout,
    Job,
)
from codesdk.extensions.process import _Running
from codesdk.extensions.snapshot import Snapshot
from codesdk.extensions.worker import Code
from codesdk.foreign import ForeignCrash
from codesdk.testing.fakes import memory_sdk

# --- the policy channel -----------------------------------------------------------------------------

_FAST = ArbiterLimits(grace_s=0.01, probe_s=0.01)


def _message(kind: str, **fields: Any) -> bytes:
    return json.dumps({"v": 1, "type": kind, "ts": 1_700_000_000_000, "id": "t-1", **fields}).encode() + b"\n"


def policy_events() -> list[bytes]:
    """Return what wrapped programs print: requests, results, progress, and lines of their own."""
    args = {"path": "a/../b", "url": "http://[::1]/", "command": "rm -rf 'x", "files": [{"to": "~root"}]}
    asked = _message("tool.request", tool="fs.read", action="read", requires_policy=True, args=args)
    told = _message("tool.request", tool="sh", action="exec", requires_policy=False, args={"argv": ["a"]})
    ended = _message("tool.result", ok=True, output={"a": 1})
    progress = _message("tool.progress", stage="half", message="m", percent=0.5)
    ack = _message("policy.ack")
    return [
        MARKER + asked + b"plain\n{\n" + ended,
        told + MARKER + progress + MARKER + ended + ack,
        b"prompt> " + MARKER + asked,
    ]


def policy_commands() -> list[bytes]:
    """Return what a program is told: a ping, decisions with all they may have, an abort."""
    given = {
        "reason": "r",
        "rule_id": "x",
        "constraints": {"paths": ["a/**", "[!"], "domains": ["a.example"]},
    }
    allowed = _message("policy.decision", decision="allow", expires_in_ms=60_000, nonce="n", **given)
    ping = _message("policy.ping", capabilities=["policy.decision.v1"], timeout_ms=1000)
    open_end = _message("policy.decision", decision="allow", expires_in_ms=60_000)
    denied = _message("policy.decision", decision="deny", reason="no")
    return [ping + allowed, ping + denied,
        open_end, _message("policy.decision", decision="allow") + ping,
            _message("policy.abort", reason="r", code="user_cancel")]  # fmt: skip


def _framed(data: bytes, size: int, limit: int) -> list[Piece]:
    framing = Framing(limit)
    pieces = [one for at in range(0, len(data), size) for one in framing.feed(data[at : at + size])]
    return pieces + framing.end()


def _bytes_of(pieces: Sequence[Piece]) -> bytes:
    return b"".join(
        one if isinstance(one, bytes) else one.line for one in pieces if not isinstance(one, Overlong)
    )


def _events_in(pieces: Sequence[Piece]) -> list[Any]:
    return [found for one in pieces if isinstance(one, Candidate) and any(found := read_event(one.line))]


class _Again(WrappedProgram):
    """One that runs for each task."""

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        self._task, self.outcome = None, asyncio.get_running_loop().create_future()
        return await super().start_task(host, task)


@asynccontextmanager
async def policy_heard() -> Room:
    """An engine that decides for a program that prints the input. Every byte of it passes through."""
    pieces: list[Piece] = []

    async def play(session: ScriptedSession) -> int:
        known: set[str | None] = set()
        for piece in pieces:
            if isinstance(piece, Overlong):
                await session.report(ParseFailed("stdout", _OVERLONG))
            elif isinstance(piece, Candidate):
                event, problem = read_event(piece.line)
                if event is not None:
                    await session.say(event)
                    if isinstance(event, ToolRequest) and event.id not in known:
                        known.add(event.id)  # one that is used again gets no second decision
                        await (session.decision(event.id) if event.requires_policy else asyncio.sleep(0))
                elif problem is not None:
                    known.add(problem.waits)
                    await session.report(ParseFailed("stdout", problem))
        return 0

    wrapped = _Again(Launch(argv=["program"]), ScriptedRunner(play), _FAST)
    async with memory_sdk(runtimes=[wrapped]) as sdk:

        async def run(data: bytes) -> None:
            for limit in (MAX_LINE_BYTES, 100):
                whole, cut = _framed(data, len(data) or 1, limit), _framed(data, 7 + len(data) // 64, limit)
                assert _bytes_of(whole) == _bytes_of(cut) == data
                assert _events_in(whole) == _events_in(cut)
            pieces[:] = _framed(data, len(data) or 1, MAX_LINE_BYTES)
            session = await sdk.create_session(
                runtime=wrapped.name,
                workspace="/",
                permission_mode="yolo",
                interaction_mode="non_interactive",
                native_tools=list(OF_WRAPPED.native_tools),
            )
            try:
                await (await session.start("Go.")).result()
            except CodeSDKError as error:
                _refuse_bugs(error)
            await session.close()

        yield run


@asynccontextmanager
async def policy_told() -> Room:
    """A program that asks for a call, is told the input, and then that nobody decides: the call runs or is denied."""

    async def run(data: bytes) -> None:
        said: list[bytes] = []
        channel = Channel(said.append)
        call = channel.call("fs.read", "read", {"path": "a/b"})
        call.id = "t-1"
        asking = asyncio.create_task(call.ask())
        await asyncio.sleep(0)
        for piece in (data[: len(data) // 2], data[len(data) // 2 :], b""):
            channel.feed(piece)
            await asyncio.sleep(0)
        try:
            await asking
        except ToolDenied:
            pass
        call.progress("half", percent=0.5)
        _ = call.expired
        for line in said:
            assert read_event(line)[1] is None, line

    yield run


# --- extensions -------------------------------------------------------------------------------------


def reports() -> list[bytes]:
    """Return what processes of extensions report, a message a line, of a call that asks and of one that fails."""
    handler = Handler("turn.completed", 1, 1000, 0, 0)
    ready: Any = {"type": "ready"}
    registered = {"type": "registered", "handlers": [msgspec.to_builtins(handler)]}
    job = {"type": "j", "payload": {"a": 1}}
    asked = [
        {"type": "asked", "id": 5, "call": 1, "tool": "enqueue_job", "argument": job},
        {"type": "asked", "id": 6, "call": 1, "tool": "get_session_settings", "argument": "ses_1"},
    ]
    logged = {"type": "logged", "level": 20, "message": "m"}
    request = {"kind": "action_request", "action_type": "turn.steer.create", "payload": {"text": "x"}}
    values: list[Any] = [{"a": 1}, request, {"kind": "handler_error", "message": "m"}]
    ends: list[Any] = [{"type": "returned", "id": 1, "value": value} for value in values]
    ends.append({"type": "raised", "id": 1, "message": "m", "kind": "timeout"})
    refused = {"type": "raised", "id": 0, "message": "m", "kind": "refused"}
    whole = [[ready, registered, logged, *asked, end] for end in ends]
    return [
        b"".join(json.dumps(each).encode() + b"\n" for each in lines) for lines in [*whole, [ready, refused]]
    ]


class _Ports:
    """Takes every job, and knows no session."""

    async def enqueue(self, job: dict[str, Any]) -> EnqueueResult:
        msgspec.json.encode(job)
        queued = Job(id="job_1", type="j", state="queued")
        return EnqueueResult(module_name="x", event_type="j", status="enqueued", job=queued)

    async def settings_of(self, session_id: str) -> dict[str, Any]:
        raise InvalidRequest("There is no such session.")


_EVENT = AgentRuntimeEvent(type="turn.completed", payload={})
_CODE = Code("fuzzed", "events.py", Snapshot(Path("/"), {"events.py": b""}))
_TURNS = 12
"""How often the loop goes round between two messages, so that each is answered before the next one comes."""


@asynccontextmanager
async def extension_heard() -> Room:
    """The process of an extension that is loaded and called, and says each line as a message; then the bytes as they are."""
    logging.getLogger("codesdk.extensions.fuzzed").propagate = False  # its words, not ours

    async def run(data: bytes) -> None:
        lines = data.split(b"\n")
        await _converse([len(line).to_bytes(4, "big") + line for line in lines if line])
        await _converse([data])

    yield run


async def _converse(messages: Sequence[bytes]) -> None:
    child: Any = Child(b"", ended=False)
    running = _Running("fuzzed", child)
    calling = asyncio.create_task(_call(running))
    for message in messages:
        child.stdout.feed_data(message)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    child.stdout.feed_eof()
    await calling
    await running.end("was ended")
    if not running._reading.cancelled():
        running._reading.result()


async def _call(running: _Running) -> None:
    """Load the extension and call its handler. What it returns becomes an outcome; it may also fail."""
    try:
        await running.load(_CODE, 5)
        found = await running.call(0, _EVENT, _Ports())
    except (ForeignCrash, HandlerTimeout, InvalidRequest):
        return
    if outcomes.is_action_request(found):
        try:
            found = outcomes.to_action_request(found)
        except ValueError as error:
            found = outcomes.to_handler_error("fuzzed", "turn.completed", error)
    msgspec.json.encode(outcomes.to_emit_result("fuzzed", "turn.completed", found))


def toml_manifests() -> list[bytes]:
    """Return manifests as they are written by hand."""
    ranged = b"""
name = "a.b-c"
version = "1.2.3-rc.1+x"
agent_id = "a"
display_name = "A"

[runtime]
core_api_version_range = ">=1 <2 || ^1.2"

[[runtime.profiles]]
name = "scripted"
version_range = "1.2 - 1.4"

[entrypoints]
events = "events.py"
"""
    return [ranged, MANIFEST.format(name="helper").encode()]


def json_manifests() -> list[bytes]:
    """Return the same manifests in JSON."""
    return [json.dumps(tomllib.loads(text.decode())).encode() for text in toml_manifests()]


_PROFILES = [AgentRuntimeProfile(runtime_profile_id="scripted", runtime_profile_version="1.4.2")]


def manifest(name: str, data: bytes) -> None:
    """Read a manifest, and see whether it fits."""
    found = read_manifest(Snapshot(Path("/"), {name: data, "events.py": b""}))
    check_fit(found, _PROFILES)
    msgspec.json.encode(found)
