"""`Figures`: what handlers and jobs did, in numbers that only grow. For metrics."""

from collections import Counter
from collections.abc import Sequence

from codesdk.contract.figures import Spread
from codesdk.extensions.outcomes import ActionResult, AgentEventEmitResult, HandlerError


class Figures:
    """The numbers of one host."""

    def __init__(self) -> None:
        self.handlers: Counter[tuple[str, str]] = Counter()
        """Calls of handlers, by extension and outcome; a `handler_error` by its kind."""
        self.actions: Counter[tuple[str, str, str]] = Counter()
        """Actions that were asked for, by extension, type and status."""
        self.dispatch_s = Spread()
        """How long all handlers of an event took."""
        self.in_hand = 0
        """How many events are being dispatched or wait for that, of those that were read."""
        self.attempts: Counter[tuple[str, str]] = Counter()
        """Attempts of jobs, by type and outcome."""
        self.attempt_s = Spread()
        """How long they took."""

    def dispatched(self, results: Sequence[AgentEventEmitResult], took_s: float) -> None:
        """Count what came of an event."""
        self.dispatch_s.add(took_s)
        for result in results:
            kind = result.error if isinstance(result, HandlerError) else type(result).__struct_config__.tag
            self.handlers[result.module_name, str(kind)] += 1
            if isinstance(result, ActionResult):
                self.actions[result.module_name, result.action_type, result.status] += 1

    def attempted(self, job_type: str, outcome: str, took_s: float) -> None:
        """Count an attempt of a job."""
        self.attempts[job_type, outcome] += 1
        self.attempt_s.add(took_s)
