"""A pattern and the bytes of files → the lines that match, for a plain text or a regular expression.

A regular expression can take forever, and a thread running one cannot be stopped. So it runs in its own
process, which gets one file after the other and is killed when its time is up or nobody waits any more.
"""

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Self

import msgspec

from codesdk.tools.registry import ToolError

_POLL_MS = 50
_START_S = 30.0

# The other process. It reads the pattern, then for each file a line with the maximum of matches and the size,
# and the bytes. It answers each with one line.
_WORKER = """
import json, re, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
except (ImportError, ValueError, OSError):
    pass
source, answers = sys.stdin.buffer, sys.stdout.buffer
pattern, flags = json.loads(source.readline())
try:
    search, problem = re.compile(pattern, flags).search, None
except (re.error, RecursionError, OverflowError) as error:
    problem = str(error)
answers.write(json.dumps(problem).encode() + b"\\n")
answers.flush()
while head := source.readline():
    most, size = json.loads(head)
    places = []
    for number, line in enumerate(source.read(size).decode("utf-8", "replace").split("\\n"), start=1):
        found = search(line[:-1] if line.endswith("\\r") else line)
        if found:
            places.append((number, found.start()))
            if len(places) == most:
                break
    answers.write(json.dumps(places).encode() + b"\\n")
    answers.flush()
"""


class TooSlow(Exception):
    """The pattern exceeded its time or memory limit, or nobody waits for it any more."""


class Place(msgspec.Struct, frozen=True):
    """A match: the line's number from 1, and the column of the match from 0."""

    number: int
    column: int


class PlainText:
    """Finds a plain text as it is written, which is never slow, so it needs no process. Use it in a `with`.

    Without regard to case it would be slow: then every place is compared by itself, and `RegularExpression` is for that.
    """

    def __init__(self, text: str) -> None:
        self._search = re.compile(re.escape(text)).search

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def find(self, data: bytes, most: int) -> list[Place]:
        """Return the first matches in a file."""
        text = data.decode("utf-8", "replace")
        places: list[Place] = []
        number, at = 1, 0
        while len(places) < most and (found := self._search(text, at)) is not None:
            number += text.count("\n", at, found.start())
            places.append(Place(number, found.start() - text.rfind("\n", 0, found.start()) - 1))
            at = text.find("\n", found.end()) + 1
            number += 1
            if at == 0:
                break
        return places


class RegularExpression:
    """Finds a regular expression in another process, which lives as long as the `with`.

    `seconds` is for all files; ends when `go_on` returns False.
    """

    def __init__(self, pattern: str, *, ignore_case: bool, seconds: float, go_on: Callable[[], bool]) -> None:
        if not sys.executable:
            raise ToolError("Regular expressions cannot be used here; set literal and search for plain text.")
        self._first = (pattern, re.IGNORECASE if ignore_case else 0)
        self._left_s = seconds
        self._go_on = go_on
        self._buffer = b""

    def __enter__(self) -> Self:
        # Nothing else of the environment is passed on: it may hold secrets. Without this one, an interpreter
        # that uses a shared library may not start.
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WORKER],  # isolated, and without site packages
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept,
            bufsize=0,
        )
        try:
            self._send(json.dumps(self._first).encode() + b"\n")
            problem = msgspec.json.decode(self._line(_START_S), type=str | None)
            if problem is not None:
                raise ToolError(
                    f"The pattern is not a regular expression: {problem}. For plain text set literal."
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def find(self, data: bytes, most: int) -> list[Place]:
        """Return the first matches in a file. Raise `TooSlow`. Entering may raise it too."""
        self._send(json.dumps((most, len(data))).encode() + b"\n" + data)
        started = time.monotonic()
        line = self._line(self._left_s)
        self._left_s -= time.monotonic() - started
        return [Place(*place) for place in msgspec.json.decode(line, type=list[tuple[int, int]])]

    def _send(self, data: bytes) -> None:
        """Write to the process. This cannot block for long: it reads whenever it has answered."""
        assert self._process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self._process.stdin.write(view) or 0 :]
        except BrokenPipeError:
            raise TooSlow from None  # it ran out of memory or of processor time

    def _line(self, seconds: float) -> bytes:
        """Wait for an answer, while there is time and somebody wants it."""
        assert self._process.stdout is not None
        answers = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(answers, select.POLLIN)
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not self._go_on() or time.monotonic() > until:
                raise TooSlow
            if poll.poll(_POLL_MS):
                chunk = os.read(answers, 65_536)
                if not chunk:
                    raise TooSlow
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
