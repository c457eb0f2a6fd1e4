"""`Metrics`: events and figures of the engine → Prometheus text. `docs/observability.md` lists the names.

Events add to plain numbers; what only the engine knows is read at each scrape.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.figures import Spread
from codesdk.engine import Engine, millis
from codesdk.observe.extension_metrics import ExtensionMetrics
from codesdk.observe.families import Counts, Names, Spreads, counter, gauge, histogram
from codesdk.serving import COUNTS
from codesdk.store import WriterStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from codesdk.extensions import ExtensionHost

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_TOOLS = 100
MAX_MODELS = 50
MAX_RUNTIMES = 20
_KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")
_log = logging.getLogger(__name__)


class _Running(msgspec.Struct):
    """A running task. What its runtime reports as used counts only if the gateway reports nothing."""

    started_ms: int
    has_spoken: bool = False
    has_gateway: bool = False
    reported: list[ev.UsageReported] = []


class Metrics:
    """An observer that counts. Give it to `CodeSDK.open`, then have it `watch` the engine."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._waiting_approvals: int | None = None
        self._extensions = ExtensionMetrics()
        self._tasks: dict[tuple[str, str | None], _Running] = {}
        self._runtimes, self._models = Names(MAX_RUNTIMES), Names(MAX_MODELS)
        self._tools = Names(MAX_TOOLS)
        self._started, self._finished = Counts(float), Counts(float)
        self._durations, self._first_tokens = Spreads(Spread), Spreads(Spread)
        self._executions, self._tool_durations = Counts(float), Spreads(Spread)
        self._tokens, self._costs = Counts(float), Counts(float)
        self._registry: CollectorRegistry | None = None
        self._take: dict[type[Event], Callable[[Any], None]] = {
            ev.TaskStartedEvent: self._task_started,
            ev.OutputDeltaEvent: self._spoken,
            ev.OutputCompletedEvent: self._spoken,
            ev.ToolCallCompletedEvent: self._tool_completed,
            ev.UsageReportedEvent: self._used,
            ev.TaskCompletedEvent: self._task_ended,
            ev.TaskFailedEvent: self._task_ended,
            ev.TaskStoppedEvent: self._task_ended,
        }

    # --- what the engine reports --------------------------------------------------------------------

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Count events, of all principals together."""
        try:
            for event in events:
                take = self._take.get(type(event))
                if take is not None:
                    take(event)
        except Exception:  # noqa: BLE001 - an observer must not raise
            _log.exception("Events could not be counted.")

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Count nothing: a recovery ends the task that ran there, and that is counted."""

    def _task_started(self, event: ev.TaskStartedEvent) -> None:
        self._started[self._runtimes.label(event.runtime.name),] += 1
        if event.trace.task_id is not None and event.payload.executed:
            self._tasks[_which(event)] = _Running(millis(event.time))

    def _spoken(self, event: Event) -> None:
        task = self._tasks.get(_which(event))
        if task is None or task.has_spoken:
            return
        task.has_spoken = True
        seconds = (millis(event.time) - task.started_ms) / 1000
        self._first_tokens[self._runtimes.label(event.runtime.name),].add(seconds)

    def _task_ended(self, event: ev.TaskEndEvent) -> None:
        runtime = self._runtimes.label(event.runtime.name)
        labels = (runtime, event.type.removeprefix("task."))
        self._finished[labels] += 1
        task = self._tasks.pop(_which(event), None)
        if task is None:
            return  # it never ran, or in an earlier process
        self._durations[labels].add(event.payload.duration_ms / 1000)
        if not task.has_gateway:
            for reported in task.reported:
                self._spend(runtime, reported)

    def _tool_completed(self, event: ev.ToolCallCompletedEvent) -> None:
        done = event.payload
        status = "unknown" if done.outcome == "unknown" else "error" if done.is_error else "ok"
        runtime, tool = self._runtimes.label(event.runtime.name), self._tools.label(done.name)
        labels = (runtime, tool, status, done.execution_env)
        self._executions[labels] += 1
        self._tool_durations[labels].add(done.duration_ms / 1000)

    def _used(self, event: ev.UsageReportedEvent) -> None:
        reported = event.payload
        task = self._tasks.get(_which(event))
        # Both may report the same request; only what the gateway saw is counted then.
        if reported.source == "gateway":
            self._spend(self._runtimes.label(event.runtime.name), reported)
            if task is not None:
                task.has_gateway, task.reported = True, []
        elif task is not None and not task.has_gateway:
            task.reported.append(reported)

    def _spend(self, runtime: str, reported: ev.UsageReported) -> None:
        model = self._models.label(reported.model)
        for kind in _KINDS:
            count: int = getattr(reported, kind)
            if count > 0:
                self._tokens[runtime, model, kind] += count
        if reported.cost_usd is not None and reported.cost_usd > 0:
            self._costs[runtime, model] += reported.cost_usd

    # --- what a scrape reads ----------------------------------------------------------------------------

    def watch(self, engine: Engine, extensions: "ExtensionHost | None" = None) -> None:
        """Read what only the engine knows (sessions, tasks, queues, commits) at every scrape from now on.

        With `extensions`, also what only those know: handlers, actions, jobs.
        """
        self._engine = engine
        self._extensions.watch(extensions)

    async def scrape(self) -> bytes:
        """Return everything, including the approvals that wait in sessions that are not loaded."""
        if self._engine is not None:
            rows = await self._engine.ports.log.approvals(principal=None, session_id=None)
            self._waiting_approvals = sum(1 for row in rows if row.state in ("waiting", "carried"))
            await self._extensions.read(self._engine.ports.log)
        try:
            return self.render()
        finally:
            self._waiting_approvals = None

    def render(self) -> bytes:
        """Return everything in Prometheus' text format; approvals only of loaded sessions."""
        from prometheus_client import CollectorRegistry, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(self)
        return generate_latest(self._registry)

    def collect(self) -> "Iterable[Metric]":
        """Yield all metrics, for a registry of your own."""
        yield from self._of_engine()
        task = ("runtime", "status")
        tool = ("runtime", "tool", "status", "execution_env")
        yield counter("tasks_started", "Tasks that began.", ("runtime",), self._started)
        yield counter("tasks_finished", "Tasks that ended, by how.", task, self._finished)
        yield histogram(
            "task_duration_seconds", "From the start of a task to its end.", task, self._durations
        )
        yield counter(
            "tool_executions", "Tool calls that were run, by how they ended.", tool, self._executions
        )
        yield histogram("tool_duration_seconds", "How long tools ran.", tool, self._tool_durations)
        first = "From the start of a task to the model's first words."
        yield histogram("first_token_seconds", first, ("runtime",), self._first_tokens)
        kinds = "Tokens, none counted twice: input without caches, output without reasoning."
        yield counter("tokens", kinds, ("runtime", "model", "kind"), self._tokens)
        yield counter("cost_usd", "Cost where the price is known.", ("runtime", "model"), self._costs)
        yield from self._extensions.collect()

    def _of_engine(self) -> "Iterable[Metric]":
        engine = self._engine
        if engine is None:
            return
        loaded = engine.loaded
        waiting = loaded.waiting_approvals if self._waiting_approvals is None else self._waiting_approvals
        yield gauge("active_sessions", "Sessions that are not closed.", engine.open_sessions)
        yield gauge("active_tasks", "Tasks that run.", engine.slots.running)
        yield gauge("task_queue_depth", "Tasks that wait for their turn.", loaded.queued_tasks)
        yield gauge("approvals_waiting", "Questions that nobody has answered yet.", waiting)
        strain = engine.ports.strain
        waits = {("recorder",): strain.recorder_waits}
        yield counter("backpressure_waits", "How often somebody had to wait, by where.", ("where",), waits)
        for name, words, count in (
            ("subscriber_catchups", "Pages read for subscribers that fell behind.", strain.catch_ups),
            (
                "late_redactions",
                "Events with a secret that was redacted only when they were stored.",
                strain.late_redactions,
            ),
            ("observers_dropped", "Observers that raised and were dropped.", strain.dropped_observers),
        ):
            yield counter(name, words, (), {(): count})
        yield gauge("connections", "Open connections of clients, programs and other processes.", COUNTS.open)
        ends = {
            ("refused",): COUNTS.refused,
            ("evicted",): COUNTS.evicted,
            ("timed_out",): COUNTS.timed_out,
        }
        yield counter("connections_cut", "Connections that were closed on them, by why.", ("why",), ends)
        stats: object = getattr(engine.ports.log, "stats", None)
        if isinstance(stats, WriterStats):
            yield histogram("append_batch_size", "Events in one commit.", (), {(): stats.batch_frames})
            yield histogram("append_seconds", "How long a commit took.", (), {(): stats.commit_seconds})


def _which(event: Event) -> tuple[str, str | None]:
    """Return the key of a task: the id alone may belong to two tasks, of different principals."""
    return event.trace.session_id, event.trace.task_id
