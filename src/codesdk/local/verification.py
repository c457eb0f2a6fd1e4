"""A stored session → what is wrong with it: its log, by the contract's rules, and what lies beside the log.

The command line and the daemon both ask here, so that they say the same in the same words.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

from codesdk.contract.api import Finding
from codesdk.contract.ports import Blobs, EventLog
from codesdk.engine import is_interrupted, verify_session
from codesdk.local.directory import equipment_in

STORE = "store"
"""In place of the number of an invariant: the store is damaged."""
EQUIPMENT = "equipment"
"""In place of it: what a session is equipped with can be read by others."""


class Verified(NamedTuple):
    """What was found, and whether the log ends in the middle of a task, which is no fault of it."""

    findings: list[Finding]
    interrupted: bool


async def verify_stored(
    log: EventLog, blobs: Blobs, data_dir: Path | None, session_id: str, *, running: bool = False
) -> Verified:
    """Check a session. `running` says that somebody may be working on it."""
    found = await verify_session(log, blobs, session_id, running=running)
    interrupted = is_interrupted(found)
    findings = [
        Finding(
            invariant=STORE if each.invariant is None else str(each.invariant),
            message=each.message,
            seq=each.seq,
        )
        for each in ([] if interrupted else found)
    ]
    if data_dir is None:
        return Verified(findings, interrupted)
    exposed = await asyncio.to_thread(equipment_in(data_dir).exposed, session_id)
    # Without the directory's own path, which a daemon's client need not know.
    said = [sentence.replace(f"{data_dir}/", "") for sentence in exposed]
    findings += [Finding(invariant=EQUIPMENT, message=sentence) for sentence in said]
    return Verified(findings, interrupted)
