"""A recorded session → what it was told, what its tools gave back, what was decided, and what its model said.

What `comparison` plays again on another program, with tools that answer from here instead of running.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.codec import decode
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, ArtifactRef
from codesdk.contract.ports import PreparedCall, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.tools import ANSWER_TOOL, SandboxSummary, ToolClass, ToolSpec
from codesdk.engine import Archive
from codesdk.gateway import Exchange, session_cassette
from codesdk.tools import builtin_registry, offered_as

NOT_RECORDED = "This call is not in the recording."
_SCHEMAS = ("input_schema", "parameters", "parametersJsonSchema")


class LoggedCall(msgspec.Struct, kw_only=True):
    """A call of an owned tool, as the log has it."""

    name: str
    input: Any
    input_hash: str
    tool_class: ToolClass
    decision: str = "undecided"
    reason: str = ""
    result: Any = None
    is_error: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What makes two calls the same."""
        return self.name, self.input_hash


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A session that can be played again, up to the first task that was interfered with."""

    session_id: str
    created: ev.SessionCreated
    tasks: list[ev.TaskStarted]
    calls: list[LoggedCall]
    exchanges: Sequence[Exchange]
    tools: list[str]
    """The names of the tools that were offered."""
    files: Mapping[str, bytes]
    """What was attached, by artifact id."""
    left_out: int
    """Tasks that cannot be played: from the first that was steered, stopped, resumed or failed."""

    def specs(self) -> list[ToolSpec]:
        """Return the tools that were offered: our own, else as the recorded requests describe them."""
        own = {spec.name: spec for spec in builtin_registry().specs()}
        described = {
            name: found
            for exchange in self.exchanges
            for name, found in _described(exchange.sent or exchange.request)
        }
        classes: dict[str, ToolClass] = {call.name: call.tool_class for call in self.calls}
        found: list[ToolSpec] = []
        for name in self.tools:
            known = offered_as(name, described)
            if name in own:
                found.append(own[name])
            elif known is not None:
                text, schema = described[known]
                kind = classes.get(name, "dangerous")
                found.append(ToolSpec(name=name, description=text, input_schema=schema, tool_class=kind))
        return found


class LoggedTools:
    """A `ToolRunner` that runs nothing: every call gets what the same call got in the recording."""

    def __init__(self, recording: Recording) -> None:
        self._specs = recording.specs()
        self._results: dict[tuple[str, str], list[LoggedCall]] = defaultdict(list)
        for call in recording.calls:
            if call.decision == "approved":
                self._results[call.key].append(call)

    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        return PreparedCall(run=self.run, execution_env="codesdk_host", sandbox=SandboxSummary(network=False))

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        """Return the recorded result."""
        logged = self._results[call.name, hash_json(call.input)]
        if not logged:
            return ToolRun(result=NOT_RECORDED, is_error=True)
        # The last one stays: a program may ask more often than the recorded one did.
        answer = logged.pop(0) if len(logged) > 1 else logged[0]
        return ToolRun(result=answer.result, is_error=answer.is_error)

    async def close_session(self, session_id: str) -> None:
        """Release nothing."""


async def read_recording(archive: Archive, session_id: str) -> Recording:
    """Return a recorded session. Raise `InvalidRequest` if it cannot be played again."""
    exchanges = await session_cassette(archive, session_id)
    events = [decode(frame.data) async for frame in archive.frames(session_id) if frame.damage is None]
    created = next((e.payload for e in events if isinstance(e.payload, ev.SessionCreated)), None)
    tasks, left_out = _tasks(events)
    obstacle = obstacle_of(created, len(tasks))
    if created is None or obstacle is not None:
        raise InvalidRequest(f"Session {session_id} cannot be played again: {obstacle}.")
    manifests = [e.payload.tool_manifest for e in events if isinstance(e.payload, ev.ModelInput)]
    blocks = [block for task in tasks for message in task.messages for block in message.content]
    return Recording(
        session_id=session_id,
        created=created,
        tasks=tasks,
        calls=await read_calls(archive, events[: _end(events, len(tasks))]),
        exchanges=exchanges,
        tools=[entry.name for entry in manifests[0] if entry.name != ANSWER_TOOL] if manifests else [],
        files={
            block.artifact_id: (await archive.read_artifact(block.artifact_id))[1]
            for block in blocks
            if isinstance(block, ArtifactBlock)
        },
        left_out=left_out,
    )


def obstacle_of(created: ev.SessionCreated | None, tasks: int) -> str | None:
    """Return why a session with so many whole tasks cannot be played again, or None."""
    if created is None:
        return "its first event is damaged"
    if created.native_tools != "off":
        return "it has tools of its runtime's own, which would run"
    if created.parent is not None:
        return "it is a fork, and continues another session"
    return None if tasks else "none of its tasks was left to end by itself"


async def read_calls(archive: Archive, events: Sequence[ev.Event]) -> list[LoggedCall]:
    """Return the calls of a session in the order in which they were requested."""
    found: dict[str, LoggedCall] = {}
    for event in events:
        payload = event.payload
        if isinstance(payload, ev.ToolCallRequested):
            ref = payload.input_ref
            given = payload.input if ref is None else msgspec.json.decode(await _bytes(archive, ref))
            call = LoggedCall(
                name=payload.name,
                input=given,
                input_hash=payload.input_hash,
                tool_class=payload.tool_class,
            )
            found[payload.tool_call_id] = call
        elif isinstance(payload, ev.ToolCallApproved) and payload.tool_call_id in found:
            found[payload.tool_call_id].decision = "approved"
        elif isinstance(payload, ev.ToolCallDenied) and payload.tool_call_id in found:
            found[payload.tool_call_id].decision = "denied"
            found[payload.tool_call_id].reason = payload.reason
        elif isinstance(payload, ev.ToolCallCompleted) and payload.tool_call_id in found:
            call, ref = found[payload.tool_call_id], payload.result_ref
            call.is_error, call.result = payload.is_error, payload.result_preview
            if ref is not None:
                data = await _bytes(archive, ref)
                is_text = ref.content_type.startswith("text/")
                call.result = data.decode("utf-8", "replace") if is_text else msgspec.json.decode(data)
    return list(found.values())


def _tasks(events: Sequence[ev.Event]) -> tuple[list[ev.TaskStarted], int]:
    """Return how the tasks started before the first that was interfered with, and how many follow.

    What the engine said to get a result that fits a schema, it says again by itself.
    """
    started: dict[str, ev.TaskStarted] = {}
    whole: set[str] = set()
    for event in events:
        task_id, payload = event.trace.task_id or "", event.payload
        if isinstance(payload, ev.TaskStarted) and payload.executed:
            started[task_id] = payload
        elif isinstance(payload, ev.TaskCompleted) and task_id in started:
            whole.add(task_id)
        elif isinstance(payload, ev.TaskSteered) and payload.by is not None:
            continue
        elif isinstance(payload, ev.TaskSteered | ev.TaskStopRequested) and task_id in started:
            started[task_id] = msgspec.structs.replace(started[task_id], messages=[])
    tasks: list[ev.TaskStarted] = []
    for task_id, payload in started.items():
        if task_id not in whole or not payload.messages:
            break
        tasks.append(payload)
    return tasks, len(started) - len(tasks)


def _end(events: Sequence[ev.Event], tasks: int) -> int:
    """Return where the first so many tasks end."""
    ends = [place for place, event in enumerate(events, 1) if isinstance(event.payload, ev.TaskCompleted)]
    return ends[tasks - 1]


async def _bytes(archive: Archive, ref: ArtifactRef) -> bytes:
    return await archive.blobs.get(ref.content_hash)


def _described(value: Any) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """Give every tool that a request offers, in whatever format: its name, its description and its schema."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _described(item)
    elif isinstance(value, dict):
        plain = cast("dict[str, Any]", value)
        schema = next((plain[key] for key in _SCHEMAS if isinstance(plain.get(key), dict)), None)
        if schema is not None and isinstance(plain.get("name"), str):
            yield plain["name"], (str(plain.get("description", "")), schema)
            return
        for key in ("tools", "function", "functionDeclarations"):
            yield from _described(plain.get(key))
