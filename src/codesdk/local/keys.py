"""Provider keys of principals, in a private file of the data directory. Written and used, never shown.

`codesdk keys` and the daemon write the file, at the same time if need be; whoever uses it notices when it has changed.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec

from codesdk.contract.access import PROVIDERS, ProviderName
from codesdk.contract.api import KeyInfo
from codesdk.contract.arguments import check_principal
from codesdk.contract.errors import InvalidRequest, NotFound, StorageFailure
from codesdk.contract.tools import Record
from codesdk.store import now, write_file

KEYS = "keys.json"
MIN_CHARS = 8
MAX_CHARS = 4096


class _Kept(Record, frozen=True, kw_only=True):
    principal: str
    provider: ProviderName
    key: str
    created_at: str

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks, so it must not show the key.
        return f"_Kept({self.principal!r}, {self.provider!r})"


class KeyFile:
    """The provider keys of one data directory; without one, of this process. Implements `ProviderKeys`."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / KEYS
        self._seen: tuple[int, int, int] | None = None
        self._kept: dict[tuple[str, ProviderName], _Kept] = {}
        self._turn = threading.Lock()

    def of(self, principal: str) -> dict[ProviderName, str]:
        """Return a principal's keys by provider, as they are now."""
        self._refresh()
        return {kept.provider: kept.key for kept in self._kept.values() if kept.principal == principal}

    def secrets(self) -> Sequence[str]:
        """Return the keys of all principals, to be kept out of everything that is stored or shown."""
        self._refresh()
        return [kept.key for kept in self._kept.values()]

    def stored(self, principal: str | None = None) -> list[KeyInfo]:
        """Return whose keys for which providers are stored: of one principal, or of all. Never the keys."""
        self._refresh()
        return [_info(kept) for kept in self._kept.values() if principal in (None, kept.principal)]

    def add(self, principal: str, provider: ProviderName, key: str) -> KeyInfo:
        """Store a principal's key for a provider, in place of the one before."""
        check_principal(principal)
        check_provider(provider)
        kept = _Kept(principal=principal, provider=provider, key=_checked(key), created_at=now())
        with self._changing():
            self._write({**self._kept, (principal, provider): kept})
        return _info(kept)

    def remove(self, principal: str, provider: ProviderName) -> KeyInfo:
        """Remove a principal's key for a provider. Raise `NotFound` if there is none."""
        check_provider(provider)
        with self._changing():
            kept = dict(self._kept)
            found = kept.pop((principal, provider), None)
            if found is None:
                raise NotFound(
                    f"There is no {provider} key of {principal}. `codesdk keys` lists those there are."
                )
            self._write(kept)
        return _info(found)

    @contextlib.contextmanager
    def _changing(self) -> Generator[None]:
        """Read, change and write in one's turn: another process may be changing the file, too."""
        with self._turn, contextlib.ExitStack() as stack:
            if self._path is not None:
                try:
                    self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    # A file of its own: the one with the keys is replaced by every write.
                    handle = os.open(
                        self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                    )
                    stack.callback(os.close, handle)
                    fcntl.flock(handle, fcntl.LOCK_EX)
                except OSError as error:
                    raise _unwritable(self._path, error) from error
            self._refresh()
            yield

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            state = os.stat(self._path)  # noqa: PTH116 - every task looks, and a path's own method takes twice as long
        except FileNotFoundError:
            self._seen, self._kept = None, {}
            return
        except OSError as error:
            raise _unreadable(self._path, error) from error
        # The inode, too: two writes may fall into one tick of the file system's clock.
        seen = (state.st_ino, state.st_mtime_ns, state.st_size)
        if seen != self._seen:
            self._kept = {(kept.principal, kept.provider): kept for kept in _read(self._path)}
            self._seen = seen

    def _write(self, kept: dict[tuple[str, ProviderName], _Kept]) -> None:
        if self._path is None:
            self._kept = kept
            return
        try:
            write_file(self._path, msgspec.json.encode(list(kept.values())))
        except OSError as error:
            raise _unwritable(self._path, error) from error


def check_provider(name: object) -> None:
    """Raise `InvalidRequest` unless keys of a provider can be stored."""
    if name not in PROVIDERS:
        raise InvalidRequest(
            f"There is no provider {str(name)[:40]!r}. Keys can be stored for: {', '.join(PROVIDERS)}."
        )


def _checked(given: object) -> str:
    key = given.strip() if isinstance(given, str) else ""
    if not MIN_CHARS <= len(key) <= MAX_CHARS or not (key.isascii() and key.isprintable()) or " " in key:
        raise InvalidRequest(
            f"This is not a key: a key has {MIN_CHARS} to {MAX_CHARS} printable ASCII characters and no spaces."
        )
    return key


def _info(kept: _Kept) -> KeyInfo:
    return KeyInfo(principal=kept.principal, provider=kept.provider, created_at=kept.created_at)


def _read(path: Path) -> list[_Kept]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[_Kept])
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None  # a decoder's words may quote a key


def _unreadable(path: Path, error: Exception) -> StorageFailure:
    return StorageFailure(
        f"The file of provider keys {path} cannot be read ({type(error).__name__}). Repair it, or remove it and add"
        " the keys again."
    )


def _unwritable(path: Path, error: OSError) -> StorageFailure:
    return StorageFailure(f"The provider keys cannot be written to {path}: {error.strerror}.")
