"""`ChainFile` appends entries to the last segment, and signs a head.

Blocking; `trail` uses it in one thread. A crash leaves at most a torn last line, which is cut off at the next
start and recorded. A chain that was changed meanwhile goes on from its signed head, so that the gap stays
visible.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from codesdk.contract.canonical import CanonicalError
from codesdk.contract.errors import StorageFailure
from codesdk.store.audit.chain import (
    HEAD,
    MISMATCH,
    AuditEntry,
    Head,
    Place,
    Segment,
    make_key,
    parse,
    read_head,
    read_key,
    seal,
    segment_path,
    segments,
    storage_entry,
    unseal,
    write_head,
)
from codesdk.store.durable import make_directory, sync_directory

SEGMENT_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
# Surely holds the last whole line.
_TAIL_BYTES = 16 * MAX_LINE_BYTES


class ChainFile:
    """A chain opened for appending, by the one writer of its data directory. Methods raise `OSError`."""

    def __init__(self, root: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._root = root
        self._segment_bytes = segment_bytes
        self._segment = -1
        self._size = 0
        self._torn = False
        self.dirty = False
        """Whether something was appended since the last `sync`."""
        make_directory(root)
        key = read_key(root)
        tail = _Tail(root)
        head, trouble = read_head(root, key)
        self._key = key or make_key(root)
        self._head = os.open(root / HEAD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.end = tail.end
        """The last record."""
        self._start = Place() if head is None else head.start
        try:
            self._continue(tail, head, trouble)
        except BaseException:
            self.close()
            raise

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Add all records, or none if it raises. A broken write is cut off before the next one."""
        lines: list[bytes] = []
        place = self.end
        for entry in entries:
            line, place = _line(entry, place)
            lines.append(line)
        if self._segment < 0 or self._size >= self._segment_bytes:
            self._begin_segment()
        self._write(b"".join(lines))
        self.end = place
        self.dirty = True

    def sync(self) -> None:
        """Flush what was appended to disk, then sign where it ends."""
        if self.dirty:
            self._sign()
            self.dirty = False

    def forget(self, oldest: Sequence[Segment], reason: str) -> None:
        """Remove the oldest segments. First sign that the chain now begins after their last record."""
        after = _last_of(oldest[-1].path)
        if after is None:
            raise StorageFailure(
                f"The last line of {oldest[-1].path.name} is damaged, so its segment is kept. Verify the audit."
            )
        names = [segment.path.name for segment in oldest]
        entry = storage_entry(
            "retention.audit_removed", "removed", reason, segments=names, n=after.n, hash=after.hash
        )
        self.append([entry])
        self._start = after
        self.sync()
        # The new start must be on disk before the files go, or a crash would look like tampering.
        os.fsync(self._head)
        for segment in oldest:
            segment.path.unlink(missing_ok=True)
        sync_directory(self._root)

    def close(self) -> None:
        """Close the files. `sync` first."""
        for handle in (self._segment, self._head):
            if handle >= 0:
                os.close(handle)
        self._segment = self._head = -1

    def _continue(self, tail: "_Tail", head: Head | None, trouble: str) -> None:
        """Open the last segment for appending, and record what is not as it was left."""
        notes: list[AuditEntry] = []
        if tail.segment is not None:
            self._open_segment(tail.segment.path)
            if tail.torn:
                os.ftruncate(self._segment, tail.size)
                words = "the last line was not complete; the process that wrote it had ended while it wrote"
                notes.append(storage_entry("audit.recovered", "ok", words, cut_bytes=tail.torn))
            self._size = tail.size
        wrong = _compare(tail, head, trouble)
        if wrong:
            notes.append(
                storage_entry(
                    MISMATCH, "failed", wrong, found=tail.end.n, signed=head.end.n if head else None
                )
            )
            if head is not None and tail.end.n <= head.end.n:
                self.end = head.end
        if notes:
            self.append(notes)
        if head is None or head.end != self.end:
            self._sign()

    def _sign(self) -> None:
        if self._segment >= 0:
            # Records first: a head must never claim more than is on disk.
            os.fdatasync(self._segment)
        write_head(self._head, Head(end=self.end, start=self._start), self._key)

    def _write(self, data: bytes) -> None:
        if os.fstat(self._segment).st_nlink == 0:  # what is written there is gone when the process ends
            raise FileNotFoundError(
                errno.ENOENT, "its file was deleted while it was in use. End this process and start it again"
            )
        if self._torn:
            os.ftruncate(self._segment, self._size)
        self._torn = True  # until everything is written
        view = memoryview(data)
        while view:
            view = view[os.write(self._segment, view) :]
        self._torn = False
        self._size += len(data)

    def _begin_segment(self) -> None:
        """Close the full segment and open the next, which is named after its first record."""
        if self._segment >= 0:
            self.sync()
            os.close(self._segment)
            self._segment = -1
        self._open_segment(segment_path(self._root, self.end.n + 1))
        sync_directory(self._root)
        self._size = 0

    def _open_segment(self, path: Path) -> None:
        self._segment = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


class _Tail:
    """The end of the last segment: its last record, and how many bytes are whole lines or torn."""

    def __init__(self, root: Path) -> None:
        found = segments(root)
        self.segment = found[-1] if found else None
        self.end = Place()
        self.size = self.torn = 0
        self.altered = False
        if self.segment is None:
            return
        data, at = _last_bytes(self.segment.path)
        whole, newline, rest = data.rpartition(b"\n")
        self.size, self.torn = at + len(whole) + len(newline), len(rest)
        if newline:
            line = whole.rpartition(b"\n")[2]
            record = unseal(line)
            self.altered = record is None
            record = record or parse(line)
            self.end = Place(n=record.n, hash=record.hash) if record else Place(n=self.segment.first - 1)
        else:  # nothing was written to the new segment yet
            ends = (_last_of(segment.path) for segment in reversed(found[:-1]))
            self.end = next((end for end in ends if end is not None), Place())


def _compare(tail: _Tail, head: Head | None, trouble: str) -> str:
    """Return how the end of the chain differs from what was signed. Records after that end are expected."""
    if tail.altered:
        return f"the last record is not as it was written (the head is {trouble or 'in order'})"
    if head is None:
        return f"the signed head is {trouble}" if tail.end.n or trouble != "missing" else ""
    if trouble == "unchecked":
        return "the key that the head was signed with is missing"
    if tail.end.n < head.end.n:
        return f"the records from {tail.end.n + 1} to {head.end.n} are missing at the end"
    if tail.end.n == head.end.n and tail.end.hash != head.end.hash:
        return f"record {head.end.n} is not the one that was signed"
    return ""


def _line(entry: AuditEntry, place: Place) -> tuple[bytes, Place]:
    """Seal an entry. If it cannot be written as it is, seal one that says so in its place."""
    try:
        line, after = seal(entry, place)
        if len(line) <= MAX_LINE_BYTES:
            return line, after
        reason = f"the entry has {len(line):,} bytes, more than the {MAX_LINE_BYTES:,} that a line may have"
    except (CanonicalError, TypeError, ValueError) as error:
        reason = f"the entry has no canonical form: {type(error).__name__}"
    return seal(msgspec.structs.replace(entry, what={}, why={"reason": reason}), place)


def _last_bytes(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        at = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
        file.seek(at)
        return file.read(), at


def _last_of(path: Path) -> Place | None:
    """Return the place at the end of a finished segment; None if its last line cannot be read."""
    data, _ = _last_bytes(path)
    record = parse(data.rstrip(b"\n").rpartition(b"\n")[2])
    return None if record is None else Place(n=record.n, hash=record.hash)
