"""What the audit must say of a log: each event that it is about has one record, in the order of its session."""

from pathlib import Path

from codesdk import CodeSDK
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.store.audit.entries import entry_of
from codesdk.store.audit.reading import read_audit
from codesdk.store.audit.verify import verify_audit


async def check_audit(sdk: CodeSDK, path: Path) -> int:
    """Compare the audit of a data directory with its log. Return how many events have a record."""
    assert sdk.audit is not None
    await sdk.engine.settle_subscribers()
    await sdk.audit.flush()
    recorded: dict[str, list[int]] = {}
    for record in read_audit(path / "audit"):
        if "seq" in record.what:
            recorded.setdefault(record.what["session_id"], []).append(record.what["seq"])
    told: dict[str, list[int]] = {}
    for row in await sdk.archive.sessions(limit=1_000_000):
        frames = [frame.data async for frame in sdk.archive.frames(row.session_id)]
        told[row.session_id] = [event.seq for event in map(decode, frames) if is_audited(event)]
    assert recorded == told
    assert verify_audit(path / "audit").findings == []
    return sum(map(len, told.values()))


def is_audited(event: Event) -> bool:
    return entry_of(event) is not None
