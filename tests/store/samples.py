"""Rows, frames and logs for the tests of the store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from codesdk.contract.messages import user
from codesdk.contract.ports import EventLog
from codesdk.contract.records import (
    KeyRow,
    MessageRow,
    SessionRow,
    StoredFrame,
    TaskRow,
)
from codesdk.store.memory import MemoryLog
from codesdk.store.sqlite.log import SqliteLog

TIME = "2026-01-02T03:04:05.678Z"

LOGS = ["memory", "sqlite"]


@asynccontextmanager
async def opened(kind: str, directory: Path, **options: Any) -> AsyncIterator[EventLog]:
    log = MemoryLog() if kind == "memory" else await SqliteLog.open(directory / "codesdk.db", **options)
    try:
        yield log
    finally:
        await log.close()


def session(name: str = "ses_1", **values: Any) -> SessionRow:
    return SessionRow(
        **{
            "session_id": name,
            "principal": "local",
            "status": "open",
            "runtime": "scripted",
            "workspace": "ws",
            "permission_mode": "ask",
            "created_at": TIME,
            "updated_at": TIME,
            **values,
        }
    )


def task(name: str, of: str = "ses_1", **values: Any) -> TaskRow:
    return TaskRow(**{"task_id": name, "session_id": of, "state": "running", "created_at": TIME, **values})


def message(index: int, text: str = "hello") -> MessageRow:
    return MessageRow(index=index, seq=index, tokens=3, chain=f"sha256:{index}", message=user(text))


def key(name: str, body_hash: str = "sha256:aa", **values: Any) -> KeyRow:
    return KeyRow(
        **{"principal": "local", "route": "r", "key": name, "body_hash": body_hash, "answer": 1, **values}
    )


def seqs(frames: list[StoredFrame]) -> list[int]:
    return [frame.seq for frame in frames]


def texts(frames: list[StoredFrame]) -> list[bytes]:
    return [frame.data for frame in frames]


def damaged(frames: list[StoredFrame]) -> list[int]:
    return [frame.seq for frame in frames if frame.damage is not None]
