"""What prompt_toolkit draws → the terminal, one write for each picture, in a thread of its own.

A slow terminal then delays only what is shown, never the task behind it: while it is busy no new picture is drawn.
"""

import errno
import os
import select
import threading
from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

PATIENCE_S = 5.0
"""How long the end waits for a terminal that takes nothing."""


class Writer:
    """Writes what it is given, in order. `on_idle` is called when all of it is written, `on_gone` if nobody reads."""

    def __init__(self, descriptor: int, on_idle: Callable[[], None], on_gone: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_idle = on_idle
        self._on_gone = on_gone
        self._waiting: list[bytes] = []
        self._changed = threading.Condition()
        self._writing = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="codesdk-chat-output", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether something is not written yet."""
        return self._writing or bool(self._waiting)

    def put(self, data: bytes) -> None:
        """Write this after all before it."""
        with self._changed:
            self._waiting.append(data)
            self._changed.notify()

    def close(self) -> None:
        """Write what is left, and end."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                while not self._waiting and not self._ended:
                    self._changed.wait()
                if not self._waiting:
                    return
                data = b"".join(self._waiting)
                self._waiting.clear()
                self._writing = True
            if not self._write(data):
                return
            with self._changed:
                self._writing = bool(self._waiting)
            if not self._writing:
                self._on_idle()

    def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except (
                    BlockingIOError
                ):  # a loop that reads from the terminal has made it so for both directions
                    select.select([], [self._descriptor], [])
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO, errno.EBADF):
                with self._changed:
                    self._ended = True
                self._on_gone()
                return False
            raise
        return True


class HeldOutput(Vt100_Output):
    """A terminal whose flushes are held together while `held`, and handed to a writer."""

    def __init__(self, stream: TextIO, term: str | None) -> None:
        self._codec = stream.encoding or "utf-8"
        self.held = False
        self.writer: Writer | None = None
        # No cursor position requests: over a slow line the answers would come as keys.
        super().__init__(stream, _size, term=term, enable_bell=False, enable_cpr=False)

    def erase_down(self) -> None:
        """Erase from the cursor, which is in the first column, to the end of the screen.

        Not in one go: on the first line, tmux takes that for a new screen, and keeps the old one in its history.
        """
        self.write_raw("\x1b7\x1b[2K\x1b[B\x1b[J\x1b8")

    def flush(self) -> None:
        """Hand over what was drawn."""
        if self.held or not self._buffer or self.writer is None:
            return
        data = "".join(self._buffer)
        self._buffer.clear()
        self.writer.put(data.encode(self._codec, "replace"))


def _size() -> Size:
    """Return the size of the terminal. A serial line does not know its own, and says 0."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)
