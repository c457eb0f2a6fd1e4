"""Spans: made from events by the GenAI conventions, with the times of the events and nothing that was said."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode
from tests.observe.happened import BEGIN_MS, CALL, SANDBOX, answered, asked, event, ran, started, whole_task

from codesdk import CodeSDK
from codesdk.contract import events as ev
from codesdk.contract.errors import ErrorInfo, StorageFailure
from codesdk.observe import Traces
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object

USAGE = {
    "gen_ai.usage.cache_creation.input_tokens": 0,
    "gen_ai.usage.cache_read.input_tokens": 0,
    "gen_ai.usage.reasoning.output_tokens": 0,
}


class Spans:
    """Traces into memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = Traces(provider)

    def hear(self, *events: ev.Event) -> None:
        """Hear of events in one batch."""
        self.traces.committed("ann", events)

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found


def times(span: ReadableSpan) -> tuple[int, int]:
    """Return when a span began and ended, in milliseconds after the beginning."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time // 1_000_000 - BEGIN_MS, span.end_time // 1_000_000 - BEGIN_MS


@pytest.mark.parametrize("cuts", [[0, 11], [0, 1, 3, 5, 6, 8, 11]])
def test_a_task_is_a_span_with_its_requests_and_tools_below_it(cuts: list[int]):
    spans, events = Spans(), whole_task()
    for first, last in itertools.pairwise(cuts):
        spans.hear(*events[first:last])
    task = spans.one("invoke_agent codex-sdk")
    assert task.parent is None
    assert sorted((times(span), span.name, span.kind) for span in spans.all) == [
        ((0, 900), "invoke_agent codex-sdk", SpanKind.INTERNAL),
        ((10, 110), "chat gpt-5.2-codex", SpanKind.CLIENT),
        ((200, 240), "execute_tool workspace.exec", SpanKind.INTERNAL),
        ((300, 800), "chat gpt-5.2-codex", SpanKind.CLIENT),
    ]
    above: Any = task.get_span_context()
    children: list[Any] = [span for span in spans.all if span is not task]
    assert [(span.parent and span.parent.span_id) for span in children] == [above.span_id] * 3
    assert {span.get_span_context().trace_id for span in children} == {above.trace_id}


def test_spans_carry_the_attributes_of_the_conventions_and_nothing_that_was_said():
    spans = Spans()
    spans.hear(*whole_task())
    first = next(span for span in spans.all if times(span) == (10, 110))
    assert dict(first.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": "ses_1",
        "gen_ai.request.model": "gpt-5.2-codex",
        "gen_ai.response.model": "gpt-5.2-codex",
        "gen_ai.response.time_to_first_chunk": 0.045,
        **USAGE,
        "gen_ai.usage.input_tokens": 110,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 100,
        "http.response.status_code": 200,
        "codesdk.request.id": "req_1",
        "codesdk.request.purpose": "main",
        "codesdk.cost_usd": 0.2,
    }
    assert dict(spans.one("execute_tool workspace.exec").attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "workspace.exec",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": "ses_1",
        "codesdk.tool.attempt": 1,
        "codesdk.tool.execution_env": "codesdk_bubblewrap",
        "codesdk.tool.executed_by": "codesdk",
        "process.exit.code": 0,
    }
    assert dict(spans.one("invoke_agent codex-sdk").attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "codex-sdk",
        "gen_ai.conversation.id": "ses_1",
        "gen_ai.request.model": "gpt-5.2-codex",
        **USAGE,
        "gen_ai.usage.input_tokens": 130,
        "gen_ai.usage.output_tokens": 16,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "gen_ai.usage.reasoning.output_tokens": 4,
        "codesdk.task.id": "task_1",
        "codesdk.task.status": "completed",
        "codesdk.cost_usd": 0.5,
    }
    conventions = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    used = {name for span in spans.all for name in span.attributes or {} if name.startswith("gen_ai.")}
    assert used <= conventions


def test_what_went_wrong_is_marked_with_a_code_and_not_with_words():
    spans = Spans()
    begun = ev.ToolCallStarted(**CALL, name="workspace.exec", execution_env="codesdk_host", sandbox=SANDBOX)
    failure = ev.TaskFailed(
        error=ErrorInfo(code="MODEL_ERROR", message="It said a bad word.", retryable=False),
        usage=ev.UsageTotals(),
        duration_ms=9,
    )
    spans.hear(event(0, started()), event(1, asked("req_1", "count_tokens")))
    spans.hear(event(2, answered("req_1", status="failed", http_status=529)))
    spans.hear(event(3, begun), event(4, ran(is_error=True)), event(9, failure))
    found = [(span.name, (span.attributes or {}).get("error.type"), span.status) for span in spans.all]
    assert [(name, error) for name, error, _ in found] == [
        ("count_tokens gpt-5.2-codex", "529"),
        ("execute_tool workspace.exec", "tool_error"),
        ("invoke_agent codex-sdk", "MODEL_ERROR"),
    ]
    assert {(status.status_code, status.description) for _, _, status in found} == {(StatusCode.ERROR, None)}


def test_a_task_that_ends_takes_open_spans_with_it():
    spans = Spans()
    spans.hear(event(0, started()), event(1, asked("req_1")))
    stop = whole_task()[-1]
    spans.hear(stop)
    assert [(span.name, times(span)) for span in spans.all] == [
        ("chat gpt-5.2-codex", (1, 900)),
        ("invoke_agent codex-sdk", (0, 900)),
    ]


def test_a_log_that_cannot_be_written_ends_the_spans_of_its_session():
    spans = Spans()
    spans.hear(event(0, started()), event(1, asked("req_1")))
    spans.traces.failed("ann", "ses_2", StorageFailure("full"))
    assert spans.all == []
    spans.traces.failed("ann", "ses_1", StorageFailure("full"))
    assert [span.name for span in spans.all] == ["chat gpt-5.2-codex", "invoke_agent codex-sdk"]
    assert (spans.one("invoke_agent codex-sdk").attributes or {})["error.type"] == "STORAGE_FAILED"


def test_what_comes_late_or_belongs_to_no_task_makes_no_span():
    spans = Spans()
    late = [event(1, asked("req_1"), task=None), event(2, answered("req_1"), task=None), event(3, ran())]
    spans.hear(event(0, started(executed=False)), *late, whole_task()[-1])
    assert spans.all == []


async def test_a_real_session_is_traced(tmp_path: Path):
    spans = Spans()
    (tmp_path / "notes.txt").write_text("remember the milk")
    turns: list[Any] = [
        {"steps": [{"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}}}]},
        {"steps": [{"text": "Milk."}], "usage": {"input": 10, "output": 2, "cache_read": 5}},
    ]
    runtime = ScriptedRuntime(parse_object({"turns": turns}, "notes"))
    async with CodeSDK.open(runtimes={"scripted": runtime}, observers=[spans.traces]) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path, permission_mode="auto")
        await (await session.start("What do my notes say?")).result()
    assert {"execute_tool workspace.read", "invoke_agent scripted"} <= {span.name for span in spans.all}
    assert (spans.one("invoke_agent scripted").attributes or {})["gen_ai.usage.input_tokens"] == 15
    everything = "".join(span.to_json() for span in spans.all)
    assert "milk" not in everything.lower()
    assert "notes.txt" not in everything


class _Collector(BaseHTTPRequestHandler):
    got: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        pass


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Run a collector; give its address and what it gets."""
    handler = type("Handler", (_Collector,), {"got": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", handler.got
        finally:
            server.shutdown()
            thread.join()


def test_spans_reach_a_collector_over_http():
    with collector() as (endpoint, got):
        traces = Traces.to_collector(endpoint, "a test")
        traces.committed("ann", whole_task())
        traces.close()
    ((path, body),) = got
    assert path == "/v1/traces"
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    service = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
    (scope,) = resource.scope_spans
    assert service["service.name"] == "a test"
    assert scope.scope.name == "codesdk"
    assert sorted(span.name for span in scope.spans) == [
        "chat gpt-5.2-codex",
        "chat gpt-5.2-codex",
        "execute_tool workspace.exec",
        "invoke_agent codex-sdk",
    ]


def test_without_a_provider_nothing_is_recorded_and_nothing_breaks():
    traces = Traces()
    traces.committed("ann", whole_task())
    traces.close()
