"""Reads records from segment files, by number, principal, session and category; works beside a live writer.

Does not check the chain: `verify` does. A line that is not a record is skipped.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from codesdk.contract.errors import StorageFailure
from codesdk.store.audit.chain import AuditEntry, AuditRecord, Category, Segment, parse, segments

_CHUNK_BYTES = 1024 * 1024


def read_audit(
    root: Path,
    *,
    principal: str | None = None,
    session_id: str | None = None,
    category: Category | None = None,
    after: int = 0,
) -> Iterator[AuditRecord]:
    """Yield records after a number, in order. Without a principal, those of everybody and of nobody."""
    word = (session_id or "").encode()
    for segment in _from(segments(root), after):
        for line in lines_of(segment.path):
            if word not in line:
                continue
            record = parse(line)
            if record is None or record.n <= after:
                continue
            if (
                principal in (None, record.who.principal)
                and session_id in (None, record.what.get("session_id"))
                and category in (None, record.category)
            ):
                yield record


Event = tuple[object, object, str]
"""Session, seq and time of an event: after a power failure another event may get the same seq."""


def event_of(record: AuditEntry) -> Event:
    """Return the event that a record is about."""
    return (record.what.get("session_id"), record.what.get("seq"), record.time)


def find_recorded(root: Path, events: Collection[Event]) -> set[Event]:
    """Return which of the last events have a record. Reads back until a record of an earlier event."""
    found: set[Event] = set()
    for segment in reversed(segments(root)):
        lines = [line for line in lines_of(segment.path) if b'"seq":' in line]
        for record in filter(None, map(parse, reversed(lines))):
            if "seq" not in record.what:
                continue
            if event_of(record) not in events:
                return found
            found.add(event_of(record))
    return found


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file without their newlines."""
    try:
        with path.open("rb") as file:
            rest = b""
            while chunk := file.read(_CHUNK_BYTES):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
    except FileNotFoundError:
        return  # old records were removed meanwhile
    except OSError as error:
        raise StorageFailure(
            f"The audit cannot be read: {path.name}: {error.strerror}. Look at the disk and its permissions."
        ) from error


def _from(found: Sequence[Segment], after: int) -> Sequence[Segment]:
    """Return the segments without those that end before a record."""
    skipped = sum(1 for following in found[1:] if following.first <= after + 1)
    return found[skipped:]
