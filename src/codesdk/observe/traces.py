"""`Traces`: events → OpenTelemetry spans by the GenAI conventions: a task, its model requests, its tools.

A span's times are those of its events. It holds nothing that a person, a model or a tool said.
Without the extra `codesdk[otel]`, or without a configured provider, nothing is recorded.
"""

import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.events import Event, UsageTotals
from codesdk.engine import millis
from codesdk.runtimes import entries

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

_log = logging.getLogger(__name__)
_BY_MODEL = (("claude", "anthropic"), ("gpt", "openai"), ("gemini", "gcp.gemini"))


class _Open(msgspec.Struct):
    """A task whose spans are open: its own, and those of its requests and tool calls by their ids."""

    task_id: str
    span: Any
    children: dict[str, Any] = {}
    answered: dict[str, int] = {}
    """Requests that have ended, and when; their usage may still follow in the same batch."""


class Traces:
    """An observer that makes spans. Without a `provider`, it uses OpenTelemetry's global one."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        from opentelemetry import trace

        self._api = trace
        self._provider = provider or trace.get_tracer_provider()
        self._tracer = self._provider.get_tracer("codesdk", version("codesdk"))
        self._tasks: dict[str, _Open] = {}  # by session: at most one of its tasks runs
        self._take: dict[type[Event], Callable[[Any, _Open], None]] = {
            ev.RequestStartedEvent: self._request_started,
            ev.RequestCompletedEvent: self._request_completed,
            ev.UsageReportedEvent: self._used,
            ev.ToolCallStartedEvent: self._tool_started,
            ev.ToolCallCompletedEvent: self._tool_completed,
        }

    @classmethod
    def to_collector(cls, endpoint: str, service: str = "codesdk") -> "Traces":
        """Return one that sends spans to a collector by OTLP over HTTP: `http://127.0.0.1:4318/v1/traces`.

        Raise `InvalidRequest` if the extra is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise InvalidRequest(
                "Spans cannot be sent: the exporter is missing. Install it with `pip install codesdk[otel]`."
            ) from error
        provider = TracerProvider(resource=Resource.create({"service.name": service}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        return cls(provider)

    def close(self) -> None:
        """Send the remaining spans. Blocking."""
        shutdown = getattr(self._provider, "shutdown", None)  # the API's own no-op provider has none
        if shutdown is not None:
            shutdown()

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Begin and end spans. The principal stays out of them."""
        try:
            for event in events:
                if event.type == "task.started":
                    self._task_started(event)
                elif isinstance(event, ev.TaskEndEvent):
                    self._task_ended(event)
                elif type(event) in self._take:
                    task = self._task_of(event)
                    if task is not None:
                        self._take[type(event)](event, task)
            if events:
                self._end_answered(events[0].trace.session_id)
        except Exception:  # noqa: BLE001 - an observer must not raise
            _log.exception("Spans could not be made.")

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """End a session's spans: no more events of its task will come."""
        try:
            task = self._tasks.pop(session_id, None)
            if task is not None:
                self._end_task(task, None, error.code)
        except Exception:  # noqa: BLE001 - an observer must not raise
            _log.exception("Spans could not be ended.")

    # --- tasks ------------------------------------------------------------------------------------------

    def _task_started(self, event: ev.TaskStartedEvent) -> None:
        if not event.payload.executed or event.trace.task_id is None:
            return
        runtime = event.runtime
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _provider(runtime.name, runtime.model),
            "gen_ai.agent.name": runtime.name,
            "gen_ai.conversation.id": event.trace.session_id,
            "codesdk.task.id": event.trace.task_id,
        }
        if runtime.model is not None:
            attributes["gen_ai.request.model"] = runtime.model
        _put(attributes, "codesdk.client.request_id", event.trace.request_id)
        _put(attributes, "codesdk.client.id", event.trace.client_id)
        span = self._tracer.start_span(
            f"invoke_agent {runtime.name}",
            self._parent(event.trace.traceparent),
            attributes=attributes,
            start_time=_nanos(event),
        )
        self._tasks[event.trace.session_id] = _Open(event.trace.task_id, span)

    def _parent(self, traceparent: str | None) -> "Context | None":
        """Return the span of whoever started a task, as W3C Trace Context writes it; None if there is none."""
        if traceparent is None:
            return None
        _, trace_id, span_id, flags = traceparent.split("-")
        api = self._api
        parent = api.SpanContext(
            int(trace_id, 16),
            int(span_id, 16),
            is_remote=True,
            trace_flags=api.TraceFlags(int(flags, 16) & 1),
        )
        return api.set_span_in_context(api.NonRecordingSpan(parent))

    def _task_ended(self, event: ev.TaskEndEvent) -> None:
        task = self._task_of(event)
        if task is None:
            return
        del self._tasks[event.trace.session_id]
        usage = event.payload.usage
        task.span.set_attributes(_usage(usage) | {"codesdk.task.status": event.type.removeprefix("task.")})
        _set(task.span, "codesdk.cost_usd", usage.cost_usd)
        code = event.payload.error.code if event.type == "task.failed" else None
        self._end_task(task, _nanos(event), code)

    def _end_task(self, task: _Open, at: int | None, code: str | None) -> None:
        for child in list(task.children):
            self._end_child(task, child, task.answered.get(child, at))
        if code is not None:
            self._mark(task.span, code)
        task.span.end(at)

    def _task_of(self, event: Event) -> _Open | None:
        task = self._tasks.get(event.trace.session_id)
        return task if task is not None and task.task_id == event.trace.task_id else None

    # --- model requests and tools --------------------------------------------------------------------------

    def _request_started(self, event: ev.RequestStartedEvent, task: _Open) -> None:
        started = event.payload
        model = started.model or event.runtime.model
        operation = started.purpose if started.purpose in ("count_tokens", "models") else "chat"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": _provider(event.runtime.name, model),
            "gen_ai.conversation.id": event.trace.session_id,
            "codesdk.request.id": started.request_id,
            "codesdk.request.purpose": started.purpose,
        }
        if model is not None:
            attributes["gen_ai.request.model"] = model
        name = f"{operation} {model}" if model else operation
        self._begin_child(task, started.request_id, name, attributes, event, client=True)

    def _request_completed(self, event: ev.RequestCompletedEvent, task: _Open) -> None:
        done = event.payload
        span = task.children.get(done.request_id)
        if span is None:
            return
        task.answered[done.request_id] = _nanos(event)
        _set(span, "http.response.status_code", done.http_status)
        if done.time_to_first_byte_ms is not None:
            _set(span, "gen_ai.response.time_to_first_chunk", done.time_to_first_byte_ms / 1000)
        if done.status != "completed":
            self._mark(span, str(done.http_status or done.status))

    def _used(self, event: ev.UsageReportedEvent, task: _Open) -> None:
        used = event.payload
        span = task.children.get(used.request_id or "")
        if span is None:
            return
        span.set_attributes(_usage(used))
        _set(span, "gen_ai.response.model", used.model)
        _set(span, "codesdk.cost_usd", used.cost_usd)

    def _end_answered(self, session_id: str) -> None:
        """End the requests that were answered: their usage, if any, was in the same batch."""
        task = self._tasks.get(session_id)
        if task is not None and task.answered:
            for request_id, at in list(task.answered.items()):
                self._end_child(task, request_id, at)

    def _tool_started(self, event: ev.ToolCallStartedEvent, task: _Open) -> None:
        started = event.payload
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": started.name,
            "gen_ai.tool.call.id": started.tool_call_id,
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": event.trace.session_id,
            "codesdk.tool.attempt": started.attempt,
            "codesdk.tool.execution_env": started.execution_env,
        }
        child = f"{started.tool_call_id}#{started.attempt}"
        self._begin_child(task, child, f"execute_tool {started.name}", attributes, event)

    def _tool_completed(self, event: ev.ToolCallCompletedEvent, task: _Open) -> None:
        done = event.payload
        child = f"{done.tool_call_id}#{done.attempt}"
        span = task.children.get(child)
        if span is None:
            return
        span.set_attribute("codesdk.tool.executed_by", done.executed_by)
        _set(span, "process.exit.code", done.exit_code)
        if done.is_error or done.outcome == "unknown":
            self._mark(span, "tool_error" if done.outcome == "known" else "unknown_outcome")
        self._end_child(task, child, _nanos(event))

    def _begin_child(
        self,
        task: _Open,
        child: str,
        name: str,
        attributes: dict[str, Any],
        event: Event,
        *,
        client: bool = False,
    ) -> None:
        kind = self._api.SpanKind.CLIENT if client else self._api.SpanKind.INTERNAL
        context = self._api.set_span_in_context(task.span)
        task.children[child] = self._tracer.start_span(
            name, context, kind, attributes, start_time=_nanos(event)
        )

    def _end_child(self, task: _Open, child: str, at: int | None) -> None:
        task.answered.pop(child, None)
        task.children.pop(child).end(at)

    def _mark(self, span: "Span", error: str) -> None:
        span.set_attribute("error.type", error)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR))


def _set(span: "Span", name: str, value: str | float | None) -> None:
    """Set an attribute if its value is known."""
    if value is not None:
        span.set_attribute(name, value)


def _put(attributes: dict[str, Any], name: str, value: str | None) -> None:
    if value is not None:
        attributes[name] = value


def _usage(usage: UsageTotals | ev.UsageReported) -> dict[str, int]:
    """Return token counts by the conventions: input includes what was cached, output includes reasoning."""
    return {
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output + usage.reasoning,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }


def _provider(runtime: str, model: str | None) -> str:
    """Return the model's provider as far as the names tell, else the runtime itself."""
    known = next((name for prefix, name in _BY_MODEL if (model or "").startswith(prefix)), None)
    entry = entries().get(runtime)
    return known or (entry.provider if entry else None) or runtime


def _nanos(event: Event) -> int:
    return millis(event.time) * 1_000_000
