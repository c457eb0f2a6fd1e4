"""Entries for tests of the audit."""

from codesdk.store.audit.chain import AuditEntry, Who

WHEN = "2026-01-02T03:04:05.678Z"


def entry(number: int = 0, **what: object) -> AuditEntry:
    return AuditEntry(
        time=WHEN,
        category="request",
        action="task.start",
        outcome="ok",
        who=Who(principal="ann"),
        what={"number": number, **what},
    )
