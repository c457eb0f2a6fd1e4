"""Metrics: what is counted of events, what is read from an engine, and that labels have an end."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.engine.rig import rig
from tests.observe.happened import ended, event, ran, said, started, used, whole_task

from codesdk import CodeSDK, Limits
from codesdk.contract import events as ev
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.tools import Actor
from codesdk.engine.log import feed as feeds
from codesdk.observe import Metrics
from codesdk.observe.metrics import MAX_MODELS, MAX_TOOLS
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, call, delta, done, message

NAMES = {
    "codesdk_active_sessions": "gauge",
    "codesdk_active_tasks": "gauge",
    "codesdk_task_queue_depth": "gauge",
    "codesdk_tasks_started_total": "counter",
    "codesdk_tasks_finished_total": "counter",
    "codesdk_task_duration_seconds": "histogram",
    "codesdk_tool_executions_total": "counter",
    "codesdk_tool_duration_seconds": "histogram",
    "codesdk_approvals_waiting": "gauge",
    "codesdk_first_token_seconds": "histogram",
    "codesdk_tokens_total": "counter",
    "codesdk_cost_usd_total": "counter",
    "codesdk_append_batch_size": "histogram",
    "codesdk_append_seconds": "histogram",
    "codesdk_backpressure_waits_total": "counter",
    "codesdk_subscriber_catchups_total": "counter",
    "codesdk_late_redactions_total": "counter",
    "codesdk_observers_dropped_total": "counter",
    "codesdk_connections": "gauge",
    "codesdk_connections_cut_total": "counter",
    "codesdk_extension_calls_total": "counter",
    "codesdk_extension_actions_total": "counter",
    "codesdk_extension_dispatch_seconds": "histogram",
    "codesdk_extension_backlog": "gauge",
    "codesdk_jobs": "gauge",
    "codesdk_job_attempts_total": "counter",
    "codesdk_job_attempt_seconds": "histogram",
}


def samples(text: bytes, *, buckets: bool = False) -> dict[str, float]:
    """Return all samples by name and labels."""
    lines = [line for line in text.decode().split("\n") if line and not line.startswith("#")]
    pairs = [line.rsplit(" ", 1) for line in lines if buckets or "_bucket{" not in line]
    return {name: float(value) for name, value in pairs}


def heard(*events: ev.Event) -> Metrics:
    metrics = Metrics()
    metrics.committed("ann", events)
    return metrics


def test_a_task_is_counted_with_its_requests_and_tools():
    tool = 'execution_env="codesdk_bubblewrap",runtime="codex-sdk",status="ok",tool="workspace.exec"'
    model = 'model="gpt-5.2-codex",runtime="codex-sdk"'
    assert samples(heard(*whole_task()).render()) == {
        'codesdk_tasks_started_total{runtime="codex-sdk"}': 1,
        'codesdk_tasks_finished_total{runtime="codex-sdk",status="completed"}': 1,
        'codesdk_task_duration_seconds_count{runtime="codex-sdk",status="completed"}': 1,
        'codesdk_task_duration_seconds_sum{runtime="codex-sdk",status="completed"}': 0.9,
        f"codesdk_tool_executions_total{{{tool}}}": 1,
        f"codesdk_tool_duration_seconds_count{{{tool}}}": 1,
        f"codesdk_tool_duration_seconds_sum{{{tool}}}": 0.04,
        'codesdk_first_token_seconds_count{runtime="codex-sdk"}': 1,
        'codesdk_first_token_seconds_sum{runtime="codex-sdk"}': 0.06,
        'codesdk_tokens_total{kind="cache_read",model="gpt-5.2-codex",runtime="codex-sdk"}': 100,
        'codesdk_tokens_total{kind="cache_write",model="gpt-5.2-codex",runtime="codex-sdk"}': 100,
        'codesdk_tokens_total{kind="input",model="gpt-5.2-codex",runtime="codex-sdk"}': 30,
        'codesdk_tokens_total{kind="output",model="gpt-5.2-codex",runtime="codex-sdk"}': 12,
        'codesdk_tokens_total{kind="reasoning",model="gpt-5.2-codex",runtime="codex-sdk"}': 4,
        f"codesdk_cost_usd_total{{{model}}}": 0.5,
    }


def test_a_value_that_equals_a_bound_lies_below_it():
    durations = [(10, 0.01), (11, 0.025), (4_000_000, float("inf"))]
    metrics = Metrics()
    for duration_ms, _ in durations:
        metrics.committed("ann", [event(0, started()), event(duration_ms, ended(duration_ms))])
    found = samples(metrics.render(), buckets=True)
    counts = {
        float(match[1]): value
        for name, value in found.items()
        if (match := re.search(r'task_duration_seconds_bucket\{le="([^"]+)"', name))
    }
    assert (counts[0.005], counts[0.01], counts[0.025], counts[1_800], counts[float("inf")]) == (
        0,
        1,
        2,
        2,
        3,
    )


def test_how_a_task_and_a_tool_ended_is_told_apart():
    failure = ev.TaskFailed(
        error=ErrorInfo(code="MODEL_ERROR", message="no", retryable=False),
        usage=ev.UsageTotals(),
        duration_ms=1,
    )
    stop = ev.TaskStopped(reason="enough", by=Actor(kind="user"), usage=ev.UsageTotals(), duration_ms=1)
    metrics = heard(
        event(0, ran(is_error=True)),
        event(0, ran(outcome="unknown")),
        event(0, started()),
        event(1, failure),
        event(2, started(executed=False)),
        event(3, stop),
    )
    found = samples(metrics.render())
    assert {name: value for name, value in found.items() if "_total" in name} == {
        'codesdk_tasks_started_total{runtime="codex-sdk"}': 2,
        'codesdk_tasks_finished_total{runtime="codex-sdk",status="failed"}': 1,
        'codesdk_tasks_finished_total{runtime="codex-sdk",status="stopped"}': 1,
        'codesdk_tool_executions_total{execution_env="codesdk_bubblewrap",runtime="codex-sdk",status="error",tool="workspace.exec"}': 1,
        'codesdk_tool_executions_total{execution_env="codesdk_bubblewrap",runtime="codex-sdk",status="unknown",tool="workspace.exec"}': 1,
    }
    assert [name for name in found if "task_duration_seconds_count" in name] == [
        'codesdk_task_duration_seconds_count{runtime="codex-sdk",status="failed"}'
    ], "a task that never ran has no duration"


@pytest.mark.parametrize(
    ("reports", "counted"),
    [
        (["gateway", "gateway"], 2),
        (["runtime", "runtime"], 2),
        (["runtime", "gateway", "runtime"], 1),
    ],
)
def test_what_a_runtime_reports_counts_only_if_the_gateway_saw_nothing(reports: list[str], counted: int):
    events = [event(1, used(source, input=1)) for source in reports]
    metrics = heard(event(0, started()), *events, event(9, ended()))
    name = 'codesdk_tokens_total{kind="input",model="gpt-5.2-codex",runtime="codex-sdk"}'
    assert samples(metrics.render())[name] == counted


def test_first_words_count_once_a_task_and_from_its_start():
    metrics = heard(event(100, started()), event(350, said()), event(400, said()), event(500, ended()))
    found = samples(metrics.render())
    assert found['codesdk_first_token_seconds_count{runtime="codex-sdk"}'] == 1
    assert found['codesdk_first_token_seconds_sum{runtime="codex-sdk"}'] == 0.25


def test_labels_have_an_end_and_hold_only_what_looks_like_a_name():
    hostile = ["ses_1 drop", 'a"b', "line\nbreak", "", "x" * 200, "sk-ant-0123456789abcdefghij", "ünïcode"]
    metrics = Metrics()
    for name in [*hostile, *(f"tool.{number}" for number in range(5 * MAX_TOOLS))]:
        metrics.committed("ann", [event(0, ran(name))])
        metrics.committed("ann", [event(0, used(model=name, input=1))])
    text = metrics.render().decode()
    tools = set(re.findall(r'codesdk_tool_executions_total\{.*tool="([^"]*)"', text))
    models = set(re.findall(r'codesdk_tokens_total\{.*model="([^"]*)"', text))
    assert tools == {f"tool.{number}" for number in range(MAX_TOOLS)} | {"other"}
    assert models == {f"tool.{number}" for number in range(MAX_MODELS)} | {"other"}
    others = [value for name, value in samples(text.encode()).items() if 'tool="other"' in name]
    assert others[0] == len(hostile) + 4 * MAX_TOOLS
    assert "ann" not in text
    assert "ses_1" not in text
    assert "task_1" not in text


def test_an_event_of_a_shape_that_nobody_knows_does_not_stop_anything(caplog: pytest.LogCaptureFixture):
    broken = msgspec.structs.replace(event(0, started()), payload={})
    metrics = heard(broken)
    metrics.committed("ann", [event(0, ran())])
    assert "could not be counted" in caplog.text
    assert 'tool="workspace.exec"' in metrics.render().decode()


async def test_an_engine_on_disk_has_exactly_the_names_of_the_documentation(tmp_path: Path):
    script = parse_object(
        {"turns": [{"steps": [{"text": "Hello."}], "usage": {"input": 3, "cost_usd": 0.1}}]}, "x"
    )
    metrics = Metrics()
    runtimes = {"scripted": ScriptedRuntime(script)}
    async with CodeSDK.open(tmp_path, runtimes=runtimes, observers=[metrics]) as sdk:
        metrics.watch(sdk.engine)
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        await (await session.start("Hi")).result()
        written = sdk.engine.ports.log.stats.frames_written  # pyright: ignore[reportAttributeAccessIssue]
        text = await metrics.scrape()
    found = samples(text)
    assert dict(re.findall(r"^# TYPE (\S+) (\S+)$", text.decode(), re.MULTILINE)) == NAMES
    assert found["codesdk_append_batch_size_sum"] == written
    assert 1 <= found["codesdk_append_batch_size_count"] == found["codesdk_append_seconds_count"] <= written
    assert found["codesdk_append_seconds_sum"] > 0
    assert found["codesdk_active_sessions"] == 1
    assert found['codesdk_cost_usd_total{model="unknown",runtime="scripted"}'] == 0.1


def test_what_runs_waits_and_is_asked_is_read_from_the_engine():
    metrics = Metrics()
    with rig(limits=Limits(max_tasks=1)) as r:
        metrics.watch(r.engine)
        session, other = r.open(), r.open()
        r.start(session)
        r.start(session)
        r.start(other)
        r.emit(call("fake.write"))
        found = samples(metrics.render())
        assert {
            name: value
            for name, value in found.items()
            # Connections are the whole process's: other tests had some, too.
            if not name.endswith("total") and not name.startswith("codesdk_connections")
        } == {
            "codesdk_active_sessions": 2,
            "codesdk_active_tasks": 1,
            "codesdk_task_queue_depth": 2,
            "codesdk_approvals_waiting": 1,
            'codesdk_backpressure_waits_total{where="recorder"}': 0,
        }
        r.answer(session.id, "approve")
        r.emit(done())
        assert samples(metrics.render())["codesdk_approvals_waiting"] == 0


def test_a_scrape_also_counts_questions_of_sessions_that_are_not_loaded():
    metrics = Metrics()
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(call("fake.write"))
        r.crash()
        r.reopen()
        metrics.watch(r.engine)
        assert samples(metrics.render())["codesdk_approvals_waiting"] == 0
        assert samples(r.get(metrics.scrape()))["codesdk_approvals_waiting"] == 1


def test_waits_for_the_store_and_pages_read_for_slow_subscribers_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feeds, "RING_EVENTS", 8)
    metrics = Metrics()
    with rig(limits=Limits(max_backlog_frames=4)) as r:
        metrics.watch(r.engine)
        session = r.open()
        slow = r.watch(session.id, slow=True)
        r.start(session)
        r.emit(*(delta(f"{number} ") for number in range(500)))
        r.emit(message("so many"), done())
        while slow.cursor < r.events(session.id)[-1].seq:
            slow.pull()
        found = samples(metrics.render())
        assert found['codesdk_backpressure_waits_total{where="recorder"}'] > 0
        assert found["codesdk_subscriber_catchups_total"] > 0


async def test_two_engines_of_one_process_have_metrics_of_their_own(tmp_path: Path):
    one, two = Metrics(), Metrics()
    runtime = FakeRuntime([message("Hello."), done()])
    async with CodeSDK.open(runtimes={"fake": runtime}, observers=[one]) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        await asyncio.gather((await session.start("Hi")).result())
    assert 'codesdk_tasks_started_total{runtime="fake"}' in samples(one.render())
    assert samples(two.render()) == {}


def test_observers_load_their_libraries_only_when_they_need_them():
    code = (
        "import sys\n"
        "from codesdk.observe import LogObserver, Metrics, Traces, configure_logging\n"
        "metrics, logs = Metrics(), LogObserver()\n"
        "unwanted = ('prometheus_client', 'opentelemetry', 'mcp', 'httpx2', 'rich', 'docker')\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
