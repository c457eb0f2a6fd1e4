"""Writes audit entries as lines of a hash chain in segment files and reads them; a signed head marks its end.

A line is the RFC 8785 form of a record. Its hash covers everything else in it, including the hash of the line
before. `chain_file` writes the chain; `reading` and `verify` read it.
"""

import hmac
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from codesdk.contract.canonical import canonical, content_hash, hash_json
from codesdk.contract.errors import StorageFailure
from codesdk.contract.tools import Record
from codesdk.store.durable import write_file

Category = Literal["request", "tool", "runtime", "storage"]

GENESIS = "sha256:" + "0" * 64
"""The hash that the very first record follows."""
KEY = "key"
HEAD = "head"
MISMATCH = "audit.mismatch"
"""The action of a record that says that the audit was not as written when it was opened."""

_SEGMENT = re.compile(r"audit-(\d{12})\.jsonl")
# A fixed size, so that one write replaces the whole head.
_HEAD_BYTES = 512
_HEAD_TRIES = 5
_HASH_GAP = b'"hash":"",'


class Who(Record, frozen=True, kw_only=True):
    """Who did it. `principal` is empty for what belongs to nobody, such as the audit's own records."""

    principal: str
    kind: str = "user"
    id: str | None = None
    client_id: str | None = None
    request_id: str | None = None


class AuditEntry(Record, frozen=True, kw_only=True):
    """Something that happened: when, who, what, why, and how it went."""

    time: str
    category: Category
    action: str
    outcome: str
    who: Who
    what: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    why: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class AuditRecord(AuditEntry, frozen=True, kw_only=True):
    """An entry in its place in the chain."""

    n: int
    prev: str
    hash: str


class Place(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A place in the chain: after record `n`, whose hash is this."""

    n: int = 0
    hash: str = GENESIS


class Head(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Where the chain ends, and after which record the kept part begins."""

    end: Place
    start: Place


class SignedHead(Record, frozen=True, kw_only=True):
    """A head as it is stored, with its HMAC-SHA256."""

    head: Head
    mac: str


def now() -> str:
    """Return the time in the contract's form: UTC ISO-8601 with milliseconds and `Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def storage_entry(action: str, outcome: str, reason: str, principal: str = "", **what: object) -> AuditEntry:
    """Return an entry about what is stored, the audit itself included."""
    return AuditEntry(
        time=now(),
        category="storage",
        action=action,
        outcome=outcome,
        who=Who(principal=principal, kind="engine"),
        what=what,
        why={"reason": reason},
    )


def seal(entry: AuditEntry, place: Place) -> tuple[bytes, Place]:
    """Return the line of an entry that follows `place`, and the place after it."""
    body = cast("dict[str, Any]", msgspec.to_builtins(entry)) | {"n": place.n + 1, "prev": place.hash}
    # Written once, with a gap where the hash goes: what is hashed is the line without it. No text before the gap can
    # look like it, because a quotation mark in a string is written with a backslash.
    before, _, after = canonical(body | {"hash": ""}).partition(_HASH_GAP)
    digest = content_hash(before + after)
    return b'%b"hash":"%b",%b\n' % (before, digest.encode(), after), Place(n=place.n + 1, hash=digest)


def unseal(line: bytes) -> AuditRecord | None:
    """Return the record of a line without its newline; None if it is not byte for byte what `seal` wrote."""
    try:
        body = msgspec.json.decode(line, type=dict[str, Any])
        record = msgspec.convert(body, type=AuditRecord)
        digest = body.pop("hash")
        exact = canonical(body | {"hash": digest}) == line and hash_json(body) == digest
    except (ValueError, RecursionError):
        return None
    return record if exact else None


def parse(line: bytes) -> AuditRecord | None:
    """Return the record of a line without checking its hash; None if it is not a record."""
    try:
        return msgspec.json.decode(line, type=AuditRecord)
    except (ValueError, RecursionError):
        return None


class Segment(Record, frozen=True, kw_only=True):
    """A file of the chain, and the number of its first record."""

    first: int
    path: Path


def segments(root: Path) -> list[Segment]:
    """Return the files of a chain in order."""
    try:
        names = [path for path in root.iterdir() if _SEGMENT.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return [Segment(first=int(path.name[6:18]), path=path) for path in sorted(names)]


def segment_path(root: Path, first: int) -> Path:
    """Return the path of the segment that begins with a record."""
    return root / f"audit-{first:012d}.jsonl"


def read_key(root: Path) -> bytes | None:
    """Return the key that heads are signed with; None if there is none."""
    try:
        return bytes.fromhex((root / KEY).read_text())
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StorageFailure(
            f"The audit's key in {root} cannot be read: {error.strerror}. Look at its permissions."
        ) from error


def make_key(root: Path) -> bytes:
    """Store a new key, for its owner only, and return it."""
    key = secrets.token_bytes(32)
    write_file(root / KEY, key.hex().encode())
    return key


def write_head(handle: int, head: Head, key: bytes) -> None:
    """Replace the signed head in an open file with one write of a fixed size."""
    line = msgspec.json.encode(SignedHead(head=head, mac=_mac(head, key)))
    os.pwrite(handle, line.ljust(_HEAD_BYTES - 1) + b"\n", 0)


def read_head(root: Path, key: bytes | None) -> tuple[Head | None, str]:
    """Return the head and its fault: none, `missing`, `damaged`, `forged` or `unchecked` (no key)."""
    found: tuple[Head | None, str] = (None, "missing")
    for _ in range(_HEAD_TRIES):  # the writer may be replacing it right now
        found = _read_head(root, key)
        if found[1] in ("", "missing", "unchecked"):
            break
    return found


def _read_head(root: Path, key: bytes | None) -> tuple[Head | None, str]:
    try:
        data = (root / HEAD).read_bytes()
        if not data:
            return None, "missing"  # created, but never written
        signed = msgspec.json.decode(data, type=SignedHead)
    except FileNotFoundError:
        return None, "missing"
    except ValueError:
        return None, "damaged"
    if key is None:
        return signed.head, "unchecked"
    if not hmac.compare_digest(signed.mac, _mac(signed.head, key)):
        return None, "forged"
    return signed.head, ""


def _mac(head: Head, key: bytes) -> str:
    return hmac.new(key, canonical(head), "sha256").hexdigest()
