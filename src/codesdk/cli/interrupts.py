"""Ctrl-C, SIGTERM and SIGHUP → the task is stopped first; only a second Ctrl-C quits at once."""

import asyncio
import os
import signal
from collections.abc import Callable

from codesdk.cli.exits import INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, signals call `on_stop`; if there is none, they cancel the task that entered.

    Only a second Ctrl-C quits at once: a supervisor may send SIGTERM to the process and again to its group.
    """

    def __init__(self) -> None:
        self.on_stop: Callable[[], None] | None = None
        self._asked = False
        self._ctrl_c = False
        self._owner: asyncio.Task[object] | None = None

    def __enter__(self) -> "Interrupts":
        self._owner = asyncio.current_task()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._take, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _take(self, number: int) -> None:
        if number == signal.SIGINT:
            if self._ctrl_c:
                os._exit(INTERRUPTED)  # not sys.exit: clean-up is what the person no longer wants to wait for
            self._ctrl_c = True
        if self._asked:
            return
        self._asked = True
        if self.on_stop is not None:
            self.on_stop()
        elif self._owner is not None:
            self._owner.cancel()
