"""Segment files → records, by number, principal, session and category; beside a live writer.

Not checked against the chain: `verify` does that. A line that is no record is passed over.
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
    """Yield records after a number, in order. Without a principal, those of all, and those that are nobody's."""
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
"""What an event is known by in the audit: its session, its seq, and its time, since a seq may be lost with the power."""


def event_of(record: AuditEntry) -> Event:
    """Return the event that a record is about."""
    return (record.what.get("session_id"), record.what.get("seq"), record.time)


def find_recorded(root: Path, events: Collection[Event]) -> set[Event]:
    """Return those of the last events that have a record. Looks back to a record of an event before all of them."""
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
    """Yield the whole lines of a file without their ends; what comes behind the last end is left out."""
    try:
        with path.open("rb") as file:
            rest = b""
            while chunk := file.read(_CHUNK_BYTES):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
    except FileNotFoundError:
        return  # old records were removed meanwhile
    except OSError as error:
        raise StorageFailure(f"the audit cannot be read: {path.name}: {error.strerror}") from error


def _from(found: Sequence[Segment], after: int) -> Sequence[Segment]:
    """Leave out the segments that end before a record."""
    skipped = sum(1 for following in found[1:] if following.first <= after + 1)
    return found[skipped:]
