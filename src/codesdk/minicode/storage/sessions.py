"""Sessions as files: one JSON file each, written as a whole or not at all, for its owner only.

Implements `SessionRepository`. A file that is damaged or from a newer version is reported and left as it is. Several
processes may work in one directory: whoever writes holds its lock, and compares before it replaces.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from codesdk.contract.errors import Busy, Conflict, InvalidRequest, NotFound, StorageFailure
from codesdk.contract.tools import Record
from codesdk.minicode.types import SessionState, SessionSummary
from codesdk.store import write_file

VERSION = 1
LOCK = ".lock"
LOCK_WAIT_S = 10.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
S = TypeVar("S", bound=msgspec.Struct)
_log = logging.getLogger(__name__)


class DamagedSession(Record, frozen=True, kw_only=True):
    """A file that is not a session, and why."""

    path: str
    problem: str


class UnusableSession(StorageFailure):
    """The file of a session is damaged, or of a newer version. Nothing is written over it."""


class _Stored(SessionState, frozen=True, kw_only=True, omit_defaults=False):
    """A session as its file has it: with all of its fields, so that every file says which version it is."""


Summaries = list[SessionSummary]  # named here: in the class below, `list` is a method
Damages = list[DamagedSession]


class _Head(msgspec.Struct):
    version: int


def check_session_id(session_id: str) -> str:
    """Return an id. Raise `InvalidRequest` if it cannot be one: ids are names of files."""
    if not _ID.fullmatch(session_id):
        raise InvalidRequest(
            f"{session_id[:120]!r} cannot be a session's id: one has 1 to 100 letters, digits, - and _,"
            " and begins with a letter or a digit."
        )
    return session_id


class FsSessionRepository:
    """The sessions in a directory, which is made when the first one is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def load(self, session_id: str) -> SessionState:
        """Return a session. Raise `NotFound`, or `StorageFailure` if its file cannot be used."""
        return await asyncio.to_thread(self._load, session_id)

    async def create(self, initial: SessionState) -> None:
        """Store a new session. Raise `Conflict` if there is a file for its id, whatever is in it."""
        await asyncio.to_thread(self._create, initial)

    async def save(self, state: SessionState, previous: SessionState) -> None:
        """Replace what is stored if it still is `previous`. Otherwise raise `Conflict`, and change nothing.

        Written in a thread: if this is cancelled, it may be done all the same. Whoever has to know shields it.
        """
        await asyncio.to_thread(self._save, state, previous)

    async def list(self) -> Sequence[SessionSummary]:
        """Return the sessions, the last one used first. Files that cannot be used are logged."""
        found, damaged = await self.survey()
        for each in damaged:
            _log.warning("%s", each.problem)
        return found

    async def survey(self) -> tuple[Sequence[SessionSummary], Sequence[DamagedSession]]:
        """Return the sessions, the last one used first, and the files that cannot be used."""
        return await asyncio.to_thread(self._survey)

    async def delete(self, session_id: str) -> None:
        """Remove a session, damaged or not. Raise `NotFound`."""
        await asyncio.to_thread(self._delete, session_id)

    def _path(self, session_id: str) -> Path:
        return self._directory / f"{check_session_id(session_id)}.json"

    def _load(self, session_id: str) -> SessionState:
        path = self._path(session_id)
        data = _read(path)
        if data is None:
            raise NotFound(f"There is no session {session_id} in {self._directory}.")
        state = _decode(path, data, SessionState)
        if state.id != session_id:  # a copied file, or a file system that ignores case
            raise _damaged(path, f"it is the session {state.id[:120]!r}")
        return state

    def _create(self, initial: SessionState) -> None:
        path = self._path(initial.id)
        with self._changing():
            if path.exists() or path.is_symlink():
                raise Conflict(f"There is a session {initial.id} already. Open it, or choose another id.")
            _write(path, initial)

    def _save(self, state: SessionState, previous: SessionState) -> None:
        if state.id != previous.id:
            raise InvalidRequest(
                f"The session {previous.id} cannot become {state.id}: an id does not change."
            )
        path = self._path(state.id)
        with self._changing():
            data = _read(path)
            if data is None:
                raise Conflict(f"The session {state.id} was deleted meanwhile. Nothing was written.")
            # Mostly the very bytes that were written last; a file may be laid out differently and say the same.
            if data != _encode(previous) and _decode(path, data, SessionState) != previous:
                raise Conflict(
                    f"Another process has changed the session {state.id} meanwhile. Nothing was written: open it"
                    " again to continue from there."
                )
            _write(path, state)

    def _survey(self) -> tuple[Sequence[SessionSummary], Sequence[DamagedSession]]:
        found: Summaries = []
        damaged: Damages = []
        try:
            paths = sorted(self._directory.glob("*.json"))
        except OSError as error:
            raise _failed(self._directory, error) from None
        for path in paths:
            try:
                data = _read(path)
                if data is not None:
                    found.append(_decode(path, data, SessionSummary))
            except StorageFailure as error:
                damaged.append(DamagedSession(path=str(path), problem=error.message))
        return sorted(found, key=lambda each: each.updated_at, reverse=True), damaged

    def _delete(self, session_id: str) -> None:
        path = self._path(session_id)
        if not self._directory.is_dir():
            raise NotFound(f"There is no session {session_id} in {self._directory}.")
        with self._changing():
            try:
                path.unlink()
            except FileNotFoundError:
                raise NotFound(f"There is no session {session_id} in {self._directory}.") from None
            except OSError as error:
                raise _failed(path, error) from None

    @contextlib.contextmanager
    def _changing(self) -> Generator[None]:
        """Hold the directory's lock. It goes with the process that has it."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _failed(self._directory, error) from None
        try:
            _take(handle, self._directory)
            yield
        finally:
            os.close(handle)


def _take(handle: int, directory: Path) -> None:
    """Take a lock, or give up after a while: whoever has it writes one file, which takes no time."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Busy(f"Another process holds the lock of {directory}. Try again.") from None
            time.sleep(0.01)
        except OSError as error:
            raise _failed(directory, error) from None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failed(path, error) from None


def _write(path: Path, state: SessionState) -> None:
    try:
        write_file(path, _encode(state))
    except OSError as error:
        raise _failed(path, error) from None


def _encode(state: SessionState) -> bytes:
    return msgspec.json.encode(_Stored(**msgspec.structs.asdict(state)))


def _decode(path: Path, data: bytes, kind: type[S]) -> S:
    """Return what a file holds, as a session or as its summary. Raise `UnusableSession` for what it is instead."""
    try:
        version = msgspec.json.decode(data, type=_Head).version
        if version > VERSION:
            raise UnusableSession(
                f"The session file {path} is of version {version}, and this program knows {VERSION}. It was left"
                " as it is. Open it with a newer CodeSDK."
            )
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:  # msgspec's errors, which name the place, are among them
        raise _damaged(path, str(error) or "nested too deeply") from None


def _damaged(path: Path, why: str) -> UnusableSession:
    return UnusableSession(
        f"The session file {path} is damaged: {why}. It was left as it is. Mend it, or delete the session."
    )


def _failed(path: Path, error: OSError) -> StorageFailure:
    return StorageFailure(f"{path}: {error.strerror or error}. Look at the disk and at who may write there.")
