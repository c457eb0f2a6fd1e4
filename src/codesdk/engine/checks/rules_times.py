"""The times of a session's events: they never go back, but where an event records that the clock was set back."""

import re

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.engine.checks.rules_state import Report
from codesdk.engine.log.clock import is_set_back

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class TimeChecks:
    """Compares the time of each event with the one before it."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last = ""

    def forget(self) -> None:
        """Compare the next event with nothing: what came before it could not be read."""
        self._last = ""

    def check(self, event: Event) -> None:
        """Check the time of the next event."""
        last, payload = self._last, event.payload
        if _TIME.fullmatch(event.time) is None:
            self._report(1, f"{event.type} has the time {event.time!r}, which is not UTC with milliseconds")
            return
        self._last = event.time
        if isinstance(payload, ev.ClockChanged):
            self._check_setback(event, payload, last or payload.before)
        elif event.time < last:
            self._report(1, f"{event.type} has a time before that of the event it follows")

    def _check_setback(self, event: Event, payload: ev.ClockChanged, last: str) -> None:
        if event.trace.task_id is not None:
            self._report(3, f"{event.type} must not have a task_id ({event.trace.task_id})")
        stated = (payload.before, payload.after) == (last, event.time)
        if not stated or not is_set_back(payload.before, payload.after):
            self._report(1, f"{event.type} does not say how the clock was set back")
