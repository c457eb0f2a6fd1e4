"""`Observers`: all observers of an engine behind one guard. One that raises is reported and dropped."""

import inspect
import logging
from collections.abc import Iterable, Sequence

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.figures import Strain
from codesdk.contract.ports import Observer

_log = logging.getLogger("codesdk.observers")


class Observers:
    """Calls every observer in turn. Is an `Observer` itself, and never raises."""

    def __init__(self, observers: Iterable[Observer] = (), strain: Strain | None = None) -> None:
        self._observers = tuple(observers)
        self._strain = strain or Strain()

    def __bool__(self) -> bool:
        return bool(self._observers)

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Tell every observer about stored events."""
        for observer in self._observers:
            # Each reader of a stream waits for this, so the guard is spelled out instead of called.
            try:
                told: object = observer.committed(principal, events)
                if told is not None:
                    _refuse(told)
            except BaseException:  # noqa: BLE001 - somebody else's code: not even SystemExit may stop a session
                self._drop(observer)

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Tell every observer that a session's events could not be stored."""
        for observer in self._observers:
            try:
                _refuse(observer.failed(principal, session_id, error))
            except BaseException:  # noqa: BLE001 - as above
                self._drop(observer)

    def _drop(self, observer: Observer) -> None:
        """Report an observer that raised, and call it no more."""
        self._observers = tuple(one for one in self._observers if one is not observer)
        self._strain.dropped_observers += 1
        name = type(observer).__qualname__
        _log.exception("the observer %s failed and is not called again until CodeSDK is opened again", name)


def _refuse(told: object) -> None:
    if inspect.iscoroutine(told):
        told.close()
        raise TypeError("an observer's methods are not async: nobody would wait for them")
