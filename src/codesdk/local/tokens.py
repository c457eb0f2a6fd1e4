"""Tokens for the daemon: who may use it, as which principal, for what. Stored as hashes in a private file.

`codesdk tokens` writes the file; the daemon notices when it has changed.
"""

import hashlib
import hmac
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from codesdk.contract.actions import SCOPES, TokenScope
from codesdk.contract.arguments import check_principal
from codesdk.contract.errors import InvalidRequest, NotFound, StorageFailure
from codesdk.contract.sender import is_client_id
from codesdk.contract.tools import Record
from codesdk.store import now, write_file

TOKENS = "tokens.json"
PREFIX = "csdk_"


class Token(Record, frozen=True, kw_only=True):
    """A token as it is stored: without the token itself."""

    token_id: str
    hash: str
    principal: str
    scopes: list[TokenScope]
    created_at: str
    label: str | None = None
    expires_at: str | None = None

    @property
    def name(self) -> str:
        """What the log calls the client that uses it: its label, or its id if a label cannot stand there."""
        return self.label if self.label is not None and is_client_id(self.label) else self.token_id

    def valid(self, now: datetime) -> bool:
        """Return whether it has not expired."""
        return self.expires_at is None or now < datetime.fromisoformat(self.expires_at)


class TokenFile:
    """The tokens of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TOKENS
        self._seen: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def all(self) -> list[Token]:
        """Return all tokens, in the order in which they were made."""
        self._refresh()
        return list(self._tokens.values())

    def add(
        self,
        principal: str,
        scopes: list[TokenScope],
        *,
        label: str | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[str, Token]:
        """Make a token. Return it, for the only time, and its stored form."""
        check_principal(principal)
        if not scopes:
            raise InvalidRequest(f"A token needs at least one scope: {', '.join(SCOPES)}.")
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            token_id=f"tok_{secrets.token_hex(6)}",
            hash=_hash(secret),
            principal=principal,
            scopes=sorted(set(scopes), key=SCOPES.index),
            created_at=now(),
            label=label,
            expires_at=None if expires_at is None else _iso(expires_at),
        )
        self._write([*self.all(), token])
        return secret, token

    def revoke(self, token_id: str) -> Token:
        """Revoke a token. The daemon notices at once."""
        tokens = self.all()
        found = [token for token in tokens if token.token_id == token_id]
        if not found:
            raise NotFound(f"There is no token {token_id}. `codesdk tokens` lists those there are.")
        self._write([token for token in tokens if token.token_id != token_id])
        return found[0]

    def find(self, secret: str) -> Token | None:
        """Return the stored token for a given one, if it is known and has not expired."""
        self._refresh()
        digest = _hash(secret)
        found = self._tokens.get(digest)
        if found is None or not hmac.compare_digest(found.hash, digest):
            return None
        return found if found.valid(datetime.now(UTC)) else None

    def _refresh(self) -> None:
        try:
            state = self._path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, {}
            return
        except OSError as error:
            raise _unreadable(self._path, error) from error
        # The inode, too: two writes may fall into one tick of the file system's clock.
        seen = (state.st_ino, state.st_mtime_ns, state.st_size)
        if seen != self._seen:
            self._tokens = {token.hash: token for token in self._read()}
            self._seen = seen

    def _read(self) -> list[Token]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Token])
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from error

    def _write(self, tokens: list[Token]) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = msgspec.json.format(msgspec.json.encode(tokens)) + b"\n"
            write_file(self._path, data)
        except OSError as error:
            raise StorageFailure(
                f"The tokens cannot be written to {self._path}: {error.strerror}."
            ) from error


def _hash(secret: str) -> str:
    return hashlib.sha256(os.fsencode(secret)).hexdigest()


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _unreadable(path: Path, error: Exception) -> StorageFailure:
    return StorageFailure(
        f"The file of tokens {path} cannot be read ({type(error).__name__}). Nobody is let in."
    )
