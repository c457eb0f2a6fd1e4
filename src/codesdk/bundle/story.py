"""A session's events, read once, in order → what its tools did, its model requests, and how its tasks went.

Memory is bounded, however long the session: outputs are cut, and lists have a limit.
"""

from collections import Counter, deque
from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.tools import ToolIdentity

OUTPUT_CHARS = 64 * 1024
MAX_REQUESTS = 5_000
MAX_TASKS = 2_000
MAX_ERRORS = 500


class Output(msgspec.Struct):
    """What a tool wrote to one stream: the beginning, and the end if it is too long to keep whole."""

    begin: str = ""
    end: str = ""
    chars: int = 0

    def add(self, text: str) -> None:
        """Add text."""
        self.chars += len(text)
        room = OUTPUT_CHARS - len(self.begin)
        self.begin += text[:room]
        self.end = (self.end + text[room:])[-OUTPUT_CHARS:] if len(text) > room else self.end

    def text(self) -> str:
        """Return the text, with a note in place of what was cut."""
        cut = self.chars - len(self.begin) - len(self.end)
        return f"{self.begin}\n… {cut:,} characters …\n{self.end}" if cut else self.begin + self.end


class Attempt(msgspec.Struct, kw_only=True):
    """One attempt of a tool call, from the request to its end."""

    tool_call_id: str
    attempt: int
    name: str = ""
    task_id: str | None = None
    facts: dict[str, Any] = {}
    outputs: dict[str, Output] = {}

    def document(self) -> dict[str, Any]:
        """Return everything that is known about it."""
        outputs = {stream: output.text() for stream, output in self.outputs.items()}
        return {
            "tool_call_id": self.tool_call_id,
            "attempt": self.attempt,
            "name": self.name,
            "task_id": self.task_id,
            "stdout": "",
            "stderr": "",
            **outputs,
            **self.facts,
        }


class Story:
    """What happened in a session, from the events taken in so far."""

    def __init__(self) -> None:
        self.created: ev.SessionCreated | None = None
        self.transports: dict[str, dict[str, Any]] = {}
        """How each runtime of the session was given its tools over MCP, as its log says; the last word counts."""
        self.types: Counter[str] = Counter()
        self.rules: Counter[tuple[str, str, str]] = Counter()
        self.sources: dict[str, ArtifactRef] = {}
        # Dicts without values are sets that keep the order in which names first appeared.
        self.models: dict[str, None] = {}
        self.runtimes: dict[str, None] = {}
        self.runtime_sessions: dict[str, None] = {}
        self.requests: deque[dict[str, Any]] = deque(maxlen=MAX_REQUESTS)
        self.tasks: deque[dict[str, Any]] = deque(maxlen=MAX_TASKS)
        self.errors: deque[dict[str, Any]] = deque(maxlen=MAX_ERRORS)
        self.first_time = self.last_time = ""
        self._open: dict[tuple[str, int], Attempt] = {}
        self._by_request: dict[str, dict[str, Any]] = {}
        self._by_task: dict[str, dict[str, Any]] = {}

    def take(self, event: Event) -> Attempt | None:
        """Take an event in. Return the attempt of a tool call that it ends."""
        self.types[event.type] += 1
        self.first_time = self.first_time or event.time
        self.last_time = event.time
        self._runtime(event)
        payload = event.payload
        if isinstance(payload, ev.SessionCreated | ev.SessionResumed):
            self.transports[payload.runtime] = {"chosen": payload.mcp_transport, "seq": event.seq}
        if isinstance(payload, ev.SessionCreated):
            self.created = payload
        elif isinstance(payload, ev.ModelInput):
            self.sources[payload.implicit_sources_ref.content_hash] = payload.implicit_sources_ref
        elif isinstance(payload, ev.RuntimeNotice) and payload.kind in ("violation", "warning"):
            self._error(event, payload.kind, payload.message)
        elif isinstance(payload, ev.SessionRecovered):
            self._error(event, "recovered", f"{payload.task_id} was closed after a crash ({payload.cause}).")
        elif isinstance(payload, ToolIdentity):
            return self._call(event, payload)
        elif event.type.startswith("task."):
            self._task(event)
        else:
            self._request(event)
        return None

    def unfinished(self) -> list[Attempt]:
        """Return the attempts that have not ended."""
        return list(self._open.values())

    def _runtime(self, event: Event) -> None:
        runtime = event.runtime
        self.runtimes[runtime.name] = None
        if runtime.model is not None and len(self.models) < MAX_TASKS:
            self.models[runtime.model] = None
        if runtime.runtime_session_id is not None and len(self.runtime_sessions) < MAX_TASKS:
            self.runtime_sessions[runtime.runtime_session_id] = None

    def _error(self, event: Event, kind: str, message: str) -> None:
        self.errors.append({"seq": event.seq, "time": event.time, "kind": kind, "message": message})

    def _task(self, event: Event) -> None:
        task_id = event.trace.task_id or ""
        if event.type == "task.started":
            task = {
                "task_id": task_id,
                "state": "running",
                "started_at": event.time,
                "started_seq": event.seq,
            }
            self._by_task[task_id] = task
            self.tasks.append(task)
        elif isinstance(event, ev.TaskEndEvent):
            payload = event.payload
            task = self._by_task.pop(task_id, {})
            task |= {
                "state": event.type.removeprefix("task."),
                "ended_at": event.time,
                "ended_seq": event.seq,
            }
            task |= {"duration_ms": payload.duration_ms, "usage": payload.usage}
            if isinstance(payload, ev.TaskFailed):
                task["error"] = payload.error
                self._error(event, payload.error.code, payload.error.message)
            elif isinstance(payload, ev.TaskStopped):
                task |= {"reason": payload.reason, "by": payload.by}

    def _request(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, ev.RequestStarted):
            request: dict[str, Any] = {"request_id": payload.request_id, "task_id": event.trace.task_id}
            request |= {"purpose": payload.purpose, "model": payload.model, "started_at": event.time}
            self._by_request[payload.request_id] = request
            self.requests.append(request)
            # The oldest goes: a request that never completed would be kept for ever otherwise.
            while len(self._by_request) > MAX_REQUESTS:
                self._by_request.pop(next(iter(self._by_request)))
        elif isinstance(payload, ev.RequestCompleted):
            facts = msgspec.to_builtins(payload)
            self._by_request.get(payload.request_id, {}).update(facts)
            if payload.status == "failed":
                self._error(event, "model_request", f"A model request failed (HTTP {payload.http_status}).")
        elif isinstance(payload, ev.UsageReported):
            usage = msgspec.to_builtins(payload)
            self._by_request.get(payload.request_id or "", {})["usage"] = usage

    def _call(self, event: Event, payload: ToolIdentity) -> Attempt | None:
        key = (payload.tool_call_id, payload.attempt)
        attempt = self._open.get(key)
        if attempt is None and isinstance(payload, ev.ToolCallAnnounced):
            return None  # it was over before the runtime told of it, and its story is written
        if attempt is None:
            attempt = Attempt(tool_call_id=key[0], attempt=key[1], task_id=event.trace.task_id)
            self._open[key] = attempt
        attempt.name = getattr(payload, "name", attempt.name)
        if isinstance(payload, ev.ToolOutputDelta):
            attempt.outputs.setdefault(payload.stream, Output()).add(payload.delta)
            return None
        if isinstance(payload, ev.ToolCallPolicyEvaluated):
            self.rules[payload.source, payload.rule or "", payload.result] += 1
        facts: dict[str, Any] = msgspec.to_builtins(payload)
        for name in ("tool_call_id", "attempt", "name"):
            facts.pop(name, None)
        fact: dict[str, Any] = {"seq": event.seq, "time": event.time, **facts}
        attempt.facts.setdefault(event.type.removeprefix("tool.call."), []).append(fact)
        if not isinstance(payload, ev.ToolCallCompleted | ev.ToolCallDenied):
            return None
        if isinstance(payload, ev.ToolCallCompleted):
            attempt.facts["exit_code"] = payload.exit_code
            attempt.facts["is_error"] = payload.is_error
        return self._open.pop(key)
