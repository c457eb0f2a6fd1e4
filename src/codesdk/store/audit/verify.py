"""Finds what is wrong with a chain: records removed, changed, swapped, added or cut off, or files missing.

Works beside a live writer and on a copy. Without the key it checks the chain, but not the head's signature.
"""

from pathlib import Path
from typing import Literal

from codesdk.contract.tools import Record
from codesdk.store.audit.chain import (
    MISMATCH,
    AuditRecord,
    Head,
    Place,
    parse,
    read_head,
    read_key,
    segments,
    unseal,
)
from codesdk.store.audit.reading import lines_of

Kind = Literal["changed", "missing", "order", "twice", "unlinked", "unreadable", "head", "noted"]

MAX_FINDINGS = 100


class AuditFinding(Record, frozen=True, kw_only=True):
    """A fault that an untouched audit does not have."""

    kind: Kind
    message: str
    n: int | None = None
    segment: str | None = None


class AuditReport(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a check found. `end` is the last record: keep it elsewhere, and pass it as `known` later."""

    records: int
    first: int
    end: Place
    signed: int
    findings: list[AuditFinding]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def verify_audit(root: Path, known: Place | None = None) -> AuditReport:
    """Check a chain. `known` is the last record of an earlier check."""
    key = read_key(root)
    head, trouble = read_head(root, key)  # read before the records, which only grow
    checking = _Checking(head, known)
    found = segments(root)
    for segment in found:
        if head is not None and segment.first <= head.start.n:
            continue  # removed by retention, but for the file
        checking.segment = segment.path.name
        for line in lines_of(segment.path):
            checking.line(line)
    checking.segment = None
    checking.close()
    if trouble and (found or trouble != "missing"):
        checking.add("head", _HEADS[trouble])
    return AuditReport(
        records=checking.records,
        first=checking.first,
        end=checking.end,
        signed=head.end.n if head else 0,
        findings=checking.findings,
    )


_HEADS = {
    "missing": "the signed head is missing, so nobody can say where the audit must end",
    "damaged": "the signed head is damaged",
    "forged": "the head is not signed with the audit's key",
    "unchecked": "the key is missing, so the signature of the head cannot be checked",
}


class _Checking:
    """Walks along a chain, line by line."""

    def __init__(self, head: Head | None, known: Place | None) -> None:
        self.findings: list[AuditFinding] = []
        self.segment: str | None = None
        self.end = head.start if head else Place()
        self.records = self.first = 0
        self._ends = [
            (place, word) for place, word in ((head and head.end, "signed"), (known, "known")) if place
        ]
        self._hashes = dict.fromkeys((place.n for place, _ in self._ends), "")
        self._gaps: list[tuple[int, int, str | None]] = []
        self._trusted = True  # whether `end` is as it was written, so that what follows must name it

    def line(self, line: bytes) -> None:
        self.records += 1
        record = unseal(line)
        if record is None:
            self._altered(line)
            return
        self.first = self.first or record.n
        if record.n <= self.end.n:
            self._misplaced(record)
            return
        if record.n > self.end.n + 1:
            self._gaps.append((self.end.n + 1, record.n - 1, self.segment))
            self._trusted = False
        if self._trusted and record.prev != self.end.hash:
            self._unlinked(record)
        self._advance(record)
        if record.action == MISMATCH:
            self.add("noted", f"found when the audit was opened: {record.why.get('reason')}", record.n)

    def close(self) -> None:
        """Report what is missing, and compare the end with what was signed and what is known."""
        for first, last, segment in self._gaps:
            self.add("missing", f"{_span(first, last)} missing", first, segment)
        for place, word in self._ends:
            if place.n > self.end.n:
                span = _span(self.end.n + 1, place.n)
                self.add("missing", f"{span} missing at the end", self.end.n + 1)
            elif self._hashes[place.n] not in ("", place.hash):
                self.add("changed", f"record {place.n} is not the one that is {word}", place.n)

    def add(self, kind: Kind, message: str, n: int | None = None, segment: str | None = None) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(
                AuditFinding(kind=kind, message=message, n=n, segment=segment or self.segment)
            )

    def _advance(self, record: AuditRecord) -> None:
        self.end = Place(n=record.n, hash=record.hash)
        self._trusted = True
        if record.n in self._hashes:
            self._hashes[record.n] = record.hash

    def _altered(self, line: bytes) -> None:
        record = parse(line)
        if record is None:
            self.add("unreadable", f"a line behind record {self.end.n} is no record")
            return
        self.add("changed", f"record {record.n} is not as it was written", record.n)
        if record.n == self.end.n + 1:
            self._advance(record)
            self._trusted = False

    def _misplaced(self, record: AuditRecord) -> None:
        """Report a record whose number was already passed: misplaced, duplicated or added."""
        for at, (first, last, segment) in enumerate(self._gaps):
            if first <= record.n <= last:
                halves = ((first, record.n - 1, segment), (record.n + 1, last, segment))
                self._gaps[at : at + 1] = [half for half in halves if half[0] <= half[1]]
                self.add("order", f"record {record.n} stands behind record {self.end.n}", record.n)
                return
        self.add("twice", f"record {record.n} is there more than once, or was added later", record.n)

    def _unlinked(self, record: AuditRecord) -> None:
        before = f"record {record.n - 1}" if record.n > 1 else "the beginning"
        self.add("unlinked", f"record {record.n} was not written behind {before} as it is here", record.n)


def _span(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"
