"""Owners of containers: labels that name the process that made one, and the removal of what dead ones left.

A container's lease ends it with its owner. What is removed here are the few that were created but never
started, or that the engine could not remove.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codesdk.sandbox.oci.container import discard
from codesdk.sandbox.oci.engine import Engine

_BOOT, _SPACE, _PID, _BORN = (f"codesdk.sandbox.{name}" for name in ("boot", "pidns", "pid", "born"))
_LEFT_AFTER_S = 600.0


def labels() -> dict[str, str]:
    """Return the labels of containers that this process makes."""
    pid = os.getpid()
    return {_BOOT: _boot(), _SPACE: _space(), _PID: str(pid), _BORN: _born(pid) or ""}


async def remove_orphans(engine: Engine) -> int:
    """Remove containers whose owner is dead. Return how many there were."""
    found = await engine.call("containers", all=True, filters={"label": [_PID]})
    orphans = [item["Id"] for item in found if _is_orphan(item, time.time())]
    for container_id in orphans:
        await discard(engine, container_id)
    return len(orphans)


def _is_orphan(item: Mapping[str, Any], now: float) -> bool:
    """Judge by the owner if its process could be seen from here, else by what the container does."""
    known: Mapping[str, str] = item.get("Labels") or {}
    if known.get(_BOOT) == _boot() and known.get(_SPACE) == _space():
        pid = known.get(_PID, "")
        return not pid.isdigit() or _born(int(pid)) != known.get(_BORN)
    return item.get("State") != "running" and now - float(item.get("Created") or now) > _LEFT_AFTER_S


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _space() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _born(pid: int) -> str | None:
    """Return when a process started, in ticks: pids are reused, pids with start times are not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]
