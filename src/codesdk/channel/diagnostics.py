"""What explains an abort, in a file: the ends of both outputs, the calls that were open, the last events. Redacted."""

import os
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from codesdk.channel.outcome import Abort, Tally
from codesdk.channel.protocol import now
from codesdk.channel.runner import ParseFailed, RunnerSession
from codesdk.channel.table import CallTable
from codesdk.redaction import Redactor

LAST_EVENTS = 50
KEPT_FILES = 50
_MAX_CALLS = 200
_SHOWN_CHARS = 2_000
_PREFIX = "abort-"


class Diagnostics:
    """Files in a directory that is the owner's alone. Only the newest are kept."""

    def __init__(self, directory: Path, name: str, redactor: Redactor) -> None:
        self._directory = directory
        self._name = name
        self._redactor = redactor
        self._last: deque[Any] = deque(maxlen=LAST_EVENTS)

    def note(self, event: msgspec.Struct) -> None:
        """Remember an event, while it is one of the last."""
        self._last.append(event)

    def note_unreadable(self, seen: ParseFailed) -> None:
        """Remember the beginning of a line that wanted to be an event. Redacted first: a cut may hide half a secret."""
        line = self._redactor.value(seen.line)[:_SHOWN_CHARS]
        self._last.append({"type": "unreadable", "stream": seen.stream, "error": seen.error, "line": line})

    def write(
        self, argv: list[str], abort: Abort, session: RunnerSession, calls: CallTable, tally: Tally
    ) -> Path | None:
        """Write a file and return where it is; None if the disk does not take it, which must not keep an abort waiting."""
        rows = calls.rows()
        found = {
            "at": now(),
            "program": argv,
            "abort": abort,
            "counts": tally,
            "stdout_tail": session.tails["stdout"].decode("utf-8", "replace"),
            "stderr_tail": session.tails["stderr"].decode("utf-8", "replace"),
            "calls": rows[:_MAX_CALLS],
            "calls_left_out": max(0, len(rows) - _MAX_CALLS),
            "last_events": list(self._last),
        }
        # Plain data first: the redactor looks into values, not into structs.
        data = msgspec.json.format(msgspec.json.encode(self._redactor.value(msgspec.to_builtins(found))))
        path = self._directory / f"{_PREFIX}{self._name}.json"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data + b"\n")
            self._prune()
        except OSError:
            return None
        return path

    def _prune(self) -> None:
        files = sorted(self._directory.glob(f"{_PREFIX}*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[:-KEPT_FILES]:
            file.unlink(missing_ok=True)
