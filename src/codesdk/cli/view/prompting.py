"""Questions of a wrapped program at the terminal: shown on stderr, answered on /dev/tty. Its stdout stays its own."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

from rich.text import Text

from codesdk.cli.view.ask import Asker, Keyboard
from codesdk.cli.view.pieces import call_line
from codesdk.cli.view.safe import one_line
from codesdk.cli.view.screen import Screen
from codesdk.contract.events import ApprovalAnswered, ApprovalRequested, ToolCallRequested
from codesdk.contract.service import Published
from codesdk.handles import Session


class Prompting:
    """The terminal of a person. Get it from `open`."""

    def __init__(self, descriptor: int, *, own: bool) -> None:
        self._descriptor = descriptor
        self._own = own
        self._screen = Screen(err=True)
        self._asker: Asker | None = None
        self._calls: dict[str, tuple[ToolCallRequested, Any]] = {}

    @classmethod
    def open(cls) -> "Prompting | None":
        """Return the terminal, if there is one to ask on and to answer from."""
        if not sys.stderr.isatty():
            return None
        with contextlib.suppress(OSError):
            return cls(os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC), own=True)
        return cls(sys.stdin.fileno(), own=False) if sys.stdin.isatty() else None

    def close(self) -> None:
        """Stop asking."""
        if self._asker is not None:
            self._asker.close()
        if self._own:
            os.close(self._descriptor)

    async def show(self, session: Session, batch: Sequence[Published]) -> None:
        """Ask what events ask, and forget what others have answered."""
        if self._asker is None:
            keyboard = Keyboard(self._descriptor)
            self._asker = Asker(self._screen, session, self._introduce, keyboard, denies_by_default=True)
        for item in batch:
            payload: object = item.event.payload
            if isinstance(payload, ToolCallRequested):
                self._calls[payload.tool_call_id] = payload, item.event.runtime.raw
            elif isinstance(payload, ApprovalRequested):
                self._asker.ask(payload)
            elif isinstance(payload, ApprovalAnswered):
                self._asker.settle(payload)
        self._asker.step_back()
        await self._screen.send()

    def _introduce(self, tool_call_id: str) -> Any:
        """Show the call that a question is about, and return its input."""
        call, raw = self._calls.pop(tool_call_id, (None, None))
        if call is None:
            return None
        console = self._screen.console
        console.print(call_line(call.name, call.input, console.width))
        said = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
        why = f" · {one_line(str(said['rationale']), 200)}" if said.get("rationale") else ""
        console.print(Text(f"  {one_line(str(said.get('action', call.tool_class)), 40)}{why}", "dim"))
        return call.input
