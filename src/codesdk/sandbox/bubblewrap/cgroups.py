"""Control groups: limits on a whole tree of processes, where this process may set them.

Detected at run time: version 2 below a directory that was delegated to us, version 1 where its directories
can be written (as root), or none. Each command gets its own group, removed when it has ended.
"""

import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from codesdk.sandbox.backend import LimitName, SandboxLimits

PREFIX = "codesdk-"
_numbers = itertools.count(1)

Version = Literal["v2", "v1"]


class Mount(NamedTuple):
    """A mounted hierarchy: its version, mount point, which part of it, and its controllers."""

    version: Version
    point: Path
    root: str
    controllers: frozenset[str]


class Cgroups:
    """Where groups can be made: a directory for each controller (in version 2 they are all the same)."""

    def __init__(self, version: Version, homes: Mapping[str, Path]) -> None:
        self.version: Version = version
        self._homes = dict(homes)

    @property
    def limits(self) -> frozenset[LimitName]:
        """The limits that hold for all processes of a command together."""
        known: dict[str, LimitName] = {"memory": "memory", "pids": "processes", "cpuacct": "cpu"}
        return frozenset(known[name] for name in self._homes if name in known)

    def create(self, limits: SandboxLimits, *, spare: int = 0) -> "Group":
        """Make an empty group with limits. `spare` counts processes in it that are not the command's."""
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        kinds = self._homes if limits.cpu_s is not None else self._homes.keys() - {"cpuacct"}
        group = Group(self.version, {kind: self._homes[kind] / name for kind in kinds})
        try:
            group.make(limits, spare)
        except OSError:
            group.remove()
            raise
        return group

    def sweep(self) -> None:
        """Remove the empty groups of CodeSDK processes that are gone. Must not raise."""
        for home in set(self._homes.values()):
            with contextlib.suppress(OSError):
                for path in home.glob(f"{PREFIX}*"):
                    owner = path.name.removeprefix(PREFIX).partition("-")[0]
                    if not Path("/proc", owner).exists():
                        with contextlib.suppress(OSError):
                            path.rmdir()


class Group:
    """The group of one command."""

    def __init__(self, version: Version, paths: Mapping[str, Path]) -> None:
        self._version = version
        self._paths = paths

    def make(self, limits: SandboxLimits, spare: int) -> None:
        """Create the directories and write the limits."""
        for path in set(self._paths.values()):
            path.mkdir()
        if (memory := self._paths.get("memory")) and limits.memory_bytes is not None:
            self._limit_memory(memory, limits.memory_bytes)
        if (pids := self._paths.get("pids")) and limits.processes is not None:
            _write(pids / "pids.max", limits.processes + spare)

    def _limit_memory(self, path: Path, limit: int) -> None:
        """Limit memory, without escape into swap. If it runs out, version 2 kills the whole command."""
        if self._version == "v2":
            _write(path / "memory.max", limit)
            optional = {"memory.swap.max": 0, "memory.oom.group": 1}
        else:
            _write(path / "memory.limit_in_bytes", limit)
            optional = {"memory.memsw.limit_in_bytes": limit}
        for name, value in optional.items():
            if (path / name).exists():
                _write(path / name, value)

    def add(self, pid: int) -> None:
        """Move a process into the group; its children will be born there."""
        for path in set(self._paths.values()):
            _write(path / "cgroup.procs", pid)

    def cpu_s(self) -> float:
        """Return the CPU time that the group has used, 0 if it is not counted. Must not raise."""
        path = self._paths.get("cpuacct")
        if path is None:
            return 0.0
        if self._version == "v2":
            return _counter(path / "cpu.stat", "usage_usec") / 1e6
        with contextlib.suppress(OSError, ValueError):
            return int((path / "cpuacct.usage").read_text()) / 1e9
        return 0.0

    def oom_kills(self) -> int:
        """Return how many processes were killed because memory ran out. Must not raise."""
        path = self._paths.get("memory")
        name = "memory.events" if self._version == "v2" else "memory.oom_control"
        return 0 if path is None else _counter(path / name, "oom_kill")

    def refused_forks(self) -> int:
        """Return how many processes could not be started. Must not raise."""
        path = self._paths.get("pids")
        return 0 if path is None else _counter(path / "pids.events", "max")

    def remove(self) -> bool:
        """Remove the group and return whether it is gone; it must be empty. Must not raise."""
        gone = True
        for path in set(self._paths.values()):
            try:
                path.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                gone = False
        return gone


def detect(proc: Path = Path("/proc/self")) -> Cgroups | None:
    """Return where groups that limit memory and processes can be made, or None. Must not raise."""
    try:
        mounts = _mounts((proc / "mountinfo").read_text())
        own = _own((proc / "cgroup").read_text())
    except (OSError, ValueError):
        return None
    return _second(mounts, own) or _first(mounts, own)


def _second(mounts: Sequence[Mount], own: Mapping[str, str]) -> Cgroups | None:
    for mount in mounts:
        home = _place(mount, own.get("", "/")) if mount.version == "v2" else None
        # A group that holds processes cannot pass controllers on, so the one above ours may be meant for it.
        for candidate in (home, home.parent) if home else ():
            if candidate.is_relative_to(mount.point) and _shares_out(candidate):
                return Cgroups("v2", dict.fromkeys(("memory", "pids", "cpuacct"), candidate))
    return None


def _shares_out(path: Path) -> bool:
    """Return whether new groups here have the controllers that we need; enable them if that is allowed."""
    control = path / "cgroup.subtree_control"
    try:
        if not {"memory", "pids"} <= set((path / "cgroup.controllers").read_text().split()):
            return False
        if not os.access(path, os.W_OK) or not os.access(path / "cgroup.procs", os.W_OK):
            return False
        if not {"memory", "pids"} <= set(control.read_text().split()):
            _write(control, "+memory +pids")
        return {"memory", "pids"} <= set(control.read_text().split())
    except OSError:
        return False


def _first(mounts: Sequence[Mount], own: Mapping[str, str]) -> Cgroups | None:
    homes: dict[str, Path] = {}
    for mount in mounts:
        for name in mount.controllers & {"memory", "pids", "cpuacct"} if mount.version == "v1" else ():
            home = _place(mount, own.get(name, "/"))
            if home is not None and os.access(home, os.W_OK):
                homes[name] = home
    return Cgroups("v1", homes) if {"memory", "pids"} <= homes.keys() else None


def _place(mount: Mount, path: str) -> Path | None:
    """Return the directory of a group. Only a part of the hierarchy may be mounted."""
    if mount.root == "/":
        found = mount.point / path.strip("/")
    elif path == mount.root or path.startswith(mount.root + "/"):
        found = mount.point / path.removeprefix(mount.root).strip("/")
    else:
        return None
    return found if found.is_dir() else None


def _mounts(text: str) -> list[Mount]:
    found: list[Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split(" ")[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found.append(Mount("v2", Path(point), root, frozenset()))
        elif kind == "cgroup":
            found.append(Mount("v1", Path(point), root, frozenset(options.split(","))))
    return found


def _own(text: str) -> dict[str, str]:
    """Return the path of our own group by controller; version 2 has an empty name."""
    lines: Iterable[list[str]] = (line.split(":", 2) for line in text.splitlines())
    return {name: path for _, names, path in lines for name in names.split(",")}


def _write(path: Path, value: int | str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _counter(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
