"""`ExtensionMetrics`: what extensions did, and the jobs that are stored → families of metrics."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from codesdk.contract.jobs import JobState, JobStore
from codesdk.observe.families import Counts, Names, Spreads, counter, gauges, histogram

if TYPE_CHECKING:
    from prometheus_client import Metric

    from codesdk.extensions import ExtensionHost

MAX_EXTENSIONS = 50
MAX_ACTIONS = 50
MAX_JOB_TYPES = 50


class ExtensionMetrics:
    """The part of `Metrics` that is about extensions. Without any, its families are empty."""

    def __init__(self) -> None:
        self._host: ExtensionHost | None = None
        self._backlog: Mapping[tuple[str, ...], float] = {}
        self._jobs: Mapping[JobState, int] = {}
        self._extensions, self._actions = Names(MAX_EXTENSIONS), Names(MAX_ACTIONS)
        self._types = Names(MAX_JOB_TYPES)

    def watch(self, host: "ExtensionHost | None") -> None:
        """Read these extensions from now on."""
        self._host = host

    async def read(self, store: JobStore) -> None:
        """Read what takes a look at the store."""
        self._jobs = await store.count_jobs()
        if self._host is not None and self._host.backlog is not None:
            self._backlog = {(): await self._host.backlog()}

    def collect(self) -> "Iterable[Metric]":
        """Yield all of them."""
        handlers, actions, dispatches = Counts(float), Counts(float), Spreads()
        attempts, took = Counts(float), Spreads()
        if self._host is not None:
            figures = self._host.figures
            dispatches[()], took[()] = figures.dispatch_s, figures.attempt_s
            for (extension, outcome), count in figures.handlers.items():
                handlers[self._extensions.label(extension), outcome] += count
            for (extension, action, status), count in figures.actions.items():
                actions[self._extensions.label(extension), self._actions.label(action), status] += count
            for (kind, outcome), count in figures.attempts.items():
                attempts[self._types.label(kind), outcome] += count
        yield counter(
            "extension_calls", "Handlers that were called, by outcome.", ("extension", "outcome"), handlers
        )
        yield counter(
            "extension_actions",
            "Actions that handlers asked for, by what became of them.",
            ("extension", "action", "status"),
            actions,
        )
        yield histogram(
            "extension_dispatch_seconds", "How long all handlers of an event took.", (), dispatches
        )
        behind = "Entries of the log that extensions are behind, while they are told of some."
        yield gauges("extension_backlog", behind, (), self._backlog)
        states = {(state,): float(count) for state, count in self._jobs.items()}
        yield gauges("jobs", "Stored jobs, by state.", ("state",), states)
        yield counter("job_attempts", "Attempts of jobs, by outcome.", ("type", "outcome"), attempts)
        yield histogram("job_attempt_seconds", "How long attempts of jobs took.", (), took)
