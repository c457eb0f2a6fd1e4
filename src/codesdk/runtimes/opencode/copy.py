"""Opencode's own copy of a conversation: what it has of ours, and no token in it when opencode has ended."""

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codesdk.contract.messages import Message, Text, ToolUse
from codesdk.redaction import MARKER
from codesdk.runtimes.program.jsonrpc import Frame, as_dict, as_list
from codesdk.runtimes.program.unanswered import Sent, count_told

_CLEAN_S = 30.0
_STEPS = 100_000  # of SQLite's machine, between two looks at the time
_MAX_CELL_BYTES = 64 * 1024 * 1024


def in_copy(kept: Sequence[Frame], answer: Message, since: Sequence[Sent]) -> int | None:
    """Return how many of the last messages opencode has, or None if it may miss more than users' words.

    They are the model's last answer and what was said since then. A text is written down when it has ended, so an answer that was cut off is not there; with the last answer it has
    everything before. An answer with a tool call may lack the result: opencode was cut off there.
    """
    cut_off = any(isinstance(block, ToolUse) for block in answer.content)
    if cut_off or answer.message_id is None or any(sent.role != "user" for sent in since):
        return None
    wanted = answer.message_id.partition(".")[0]
    place = next((n for n, each in enumerate(kept) if _info(each).get("id") == wanted), None)
    if place is None or any(text not in _texts(kept[place]) for text in _said(answer)):
        return None
    told = [each for each in kept[place + 1 :] if _info(each).get("role") == "user"]
    files = sum(part.get("type") == "file" for each in told for part in _parts(each))
    return 1 + count_told(since, [text for each in told for text in _texts(each)], files)


def _info(kept: Frame) -> Frame:
    return as_dict(kept.get("info"))


def _texts(kept: Frame) -> list[Any]:
    return [part.get("text") for part in _parts(kept) if part.get("type") == "text"]


def _parts(kept: Frame) -> list[Frame]:
    return [as_dict(part) for part in as_list(kept.get("parts"))]


def _said(message: Message) -> list[str]:
    return [block.text for block in message.content if isinstance(block, Text) and block.text]


def forget(database: Path, secrets: Sequence[str]) -> None:
    """Take secrets out of opencode's database, when it has ended. Blocking; must not raise.

    An error of a provider is written down with the address that was asked, which holds the session's token. What cannot
    be cleaned is removed: opencode then goes on from our transcript.
    """
    files = [database.with_name(database.name + end) for end in ("", "-wal", "-shm", "-journal")]
    with contextlib.suppress(OSError):
        try:
            # SQLite would follow a link, to somebody else's database.
            plain = all(stat.S_ISREG(file.lstat().st_mode) for file in files if os.path.lexists(file))
            if not plain or (database.exists() and not _clean(database, secrets)):
                raise sqlite3.DatabaseError("not as opencode makes it")
        except sqlite3.Error:
            for file in files:
                file.unlink(missing_ok=True)


def _clean(database: Path, secrets: Sequence[str]) -> bool:
    """Take secrets out of a database. Return whether that could be done; nothing that it brings with it is run."""
    until = time.monotonic() + _CLEAN_S
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        connection.execute("PRAGMA secure_delete = ON")  # else the old words stay in pages that are free
        # An update would run them, and opencode has none.
        if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger'").fetchone():
            return False
        for table, column in _columns(connection):
            for secret in secrets:
                changed = (
                    f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?) WHERE instr("{column}", ?)'
                )
                connection.execute(changed, (secret, MARKER, secret))
                if time.monotonic() > until:  # each of very many may be short
                    return False
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return True


def _columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the columns that hold text."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = [(table, row) for table in tables for row in connection.execute(f'PRAGMA table_info("{table}")')]
    return [(table, row[1]) for table, row in found if row[2].upper().startswith(("TEXT", "JSON"))]
