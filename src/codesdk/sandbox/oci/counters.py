"""A container's control groups, read from this machine: what is alive in it, and which limits it reached.

Only groups that name the container are trusted: an engine that runs elsewhere reports its own process
numbers, and then there are no counters.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

CGROUPS = Path("/sys/fs/cgroup")


class Counted(msgspec.Struct, frozen=True):
    """What was counted since the container began."""

    oom_kills: int = 0
    forks_refused: int = 0
    cpu_s: float = 0.0

    def since(self, before: "Counted") -> "Counted":
        """Return the difference to earlier counts."""
        return Counted(
            self.oom_kills - before.oom_kills,
            self.forks_refused - before.forks_refused,
            self.cpu_s - before.cpu_s,
        )


class Counters:
    """The counters of one running container."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    @classmethod
    def of(cls, container_id: str, pid: int) -> "Counters | None":
        """Return those of a container, found by its first process, or None if they are not visible here."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return None
        named = [line.split(":", 2) for line in lines if container_id in line]
        found = {kind: folder for _, kinds, path in named for kind, folder in _folders(kinds, path)}
        counters = cls(found)
        return counters if counters.processes() else None

    def processes(self) -> frozenset[int]:
        """Return the processes that are alive in the container; none if it is gone."""
        text = self._read("pids", "cgroup.procs") or self._read("", "cgroup.procs")
        return frozenset(int(number) for number in text.split())

    def now(self) -> Counted:
        """Return the counters. A container that is gone has none."""
        old, new = self._pairs("memory", "memory.oom_control"), self._pairs("", "memory.events")
        forks = self._pairs("pids", "pids.events") or self._pairs("", "pids.events")
        nanoseconds = self._read("cpuacct", "cpuacct.usage").strip()
        microseconds = self._pairs("", "cpu.stat").get("usage_usec", 0)
        return Counted(
            oom_kills=old.get("oom_kill", 0) + new.get("oom_kill", 0),
            forks_refused=forks.get("max", 0),
            cpu_s=int(nanoseconds) / 1e9 if nanoseconds else microseconds / 1e6,
        )

    def _pairs(self, kind: str, name: str) -> dict[str, int]:
        rows = [line.split() for line in self._read(kind, name).splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}

    def _read(self, kind: str, name: str) -> str:
        folder = self._folders.get(kind)
        try:
            return (folder / name).read_text() if folder else ""
        except OSError:
            return ""


def visible() -> bool:
    """Return whether control groups can be read here at all."""
    return any((CGROUPS / name).is_file() for name in ("cgroup.controllers", "cpuacct/cpuacct.usage"))


def _folders(kinds: str, path: str) -> list[tuple[str, Path]]:
    """Return the directory of each controller; the one of version 2 has an empty name."""
    where = path.lstrip("/")
    if not kinds:
        roots = (CGROUPS, CGROUPS / "unified")
        return [("", root / where) for root in roots if (root / "cgroup.controllers").exists()]
    return [(kind, CGROUPS / kinds / where) for kind in kinds.split(",")]
