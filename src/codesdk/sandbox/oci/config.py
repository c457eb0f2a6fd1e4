"""Writes the engine's configuration of a hardened container for what a command needs.

Pure, except that it looks at the workspace. `require_accepted` checks that the engine applied everything.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from codesdk.sandbox.backend import Command, SandboxLimits, SandboxUnavailable
from codesdk.sandbox.owner import User
from codesdk.sandbox.survey import Found, Survey

WORKSPACE = "/workspace"
PROFILE = Path(__file__).with_name("seccomp.json")
_KEEPERS = (65_533, 65_532)
_MB = 1 << 20
_SHARED_MEMORY = 64 * _MB
_SMALL_TMPFS = 64 * 1024
# Limits for all containers of a user together, so no limit for one; but some engines cannot leave it out.
_USER_PROCESSES = 32_768
_FILES = 1_024
# The shell that runs a command and the two that hold the container.
_OWN_PROCESSES = 3
_CPU_PERIOD_US = 100_000
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
# Reports which directories it sees, then stays until its input ends: the input is ours, so it ends with us.
# A shell that waits also collects the orphans of the container.
_KEEPER = "exec 3<&0; cat <&3 >/dev/null & stat -L -c '%d %i' \"$@\" && echo ready && wait $!; exit 0"


class Seen(NamedTuple):
    """A place in the container, and the file or directory that it must be, or must not be."""

    path: str
    inode: tuple[int, int]
    covered: bool = False

    def agrees(self, said: str) -> bool:
        """Return whether the container sees what it should, according to `stat`."""
        return (said == f"{self.inode[0]} {self.inode[1]}") != self.covered


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What two containers must have in common to run each other's commands."""

    workspace: str
    writable: bool
    user: User
    seen: tuple[Seen, ...]
    """The workspace, what in it is read-only (.git, files with other names outside), and what is covered."""
    limits: SandboxLimits
    """Those that apply to a whole container; the others are the same for all."""


def container_spec(command: Command, place: int, user: User, found: Survey, *, links: bool) -> ContainerSpec:
    """Return what a command needs in its workspace, an open directory. `links` also protects linked files."""
    kept = [*(found.linked if links else ()), *([Found(".git", _inode(place))] if found.has_git else ())]
    seen = [Seen("", _inode(place, "."))]
    seen += [Seen(each.path, each.inode) for each in kept] if command.writable else []
    seen += [Seen(each.path, each.inode, covered=True) for each in found.covered]
    same = SandboxLimits()
    return ContainerSpec(
        workspace=command.workspace.path,
        writable=command.writable,
        user=user,
        seen=tuple(seen),
        limits=msgspec.structs.replace(command.limits, wall_s=same.wall_s, output_bytes=same.output_bytes),
    )


def _inode(place: int, name: str = ".git") -> tuple[int, int]:
    info = os.stat(name, dir_fd=place, follow_symlinks=False)
    return info.st_dev, info.st_ino


def inside(path: str) -> str:
    """Return where a path of the workspace is in the container."""
    return f"{WORKSPACE}/{path}".rstrip("/")


def container_config(
    spec: ContainerSpec, *, image: str, podman: bool, cpus: float, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of the request that creates the container."""
    keeper = next(uid for uid in _KEEPERS if uid != spec.user.uid)
    proxies = [f"{name}=" for proxy in _PROXIES for name in (proxy, proxy.upper())]
    return {
        "Image": image,
        "Entrypoint": ["/bin/sh"],
        "Cmd": ["-c", _KEEPER, "sh", *(inside(each.path) for each in spec.seen)],
        "User": f"{keeper}:{keeper}",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Env": proxies,  # some engines hand on their own proxies, with the passwords in them
        "AttachStdin": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Labels": dict(labels),
        "HostConfig": _host_config(spec, podman, cpus),
    }


def _host_config(spec: ContainerSpec, podman: bool, cpus: float) -> dict[str, Any]:
    limits = spec.limits
    memory = limits.memory_bytes or 0
    return {
        "AutoRemove": True,
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_option(podman)}"],
        "IpcMode": "private",
        "PidMode": "",
        "Memory": memory,
        "MemorySwap": memory,
        "PidsLimit": processes(limits) or -1,
        "CpuPeriod": _CPU_PERIOD_US,
        "CpuQuota": int(cpus * _CPU_PERIOD_US),
        "Ulimits": _ulimits(limits),
        "ShmSize": min(limits.scratch_bytes or _SHARED_MEMORY, _SHARED_MEMORY),
        "Tmpfs": {
            "/tmp": _tmpfs(limits.scratch_bytes),
            "/run": _tmpfs(_SMALL_TMPFS),
            "/var/tmp": _tmpfs(_SMALL_TMPFS),
            **{inside(each.path): _empty(podman) for each in spec.seen if each.covered},
        },
        "Mounts": [_mount(spec, each) for each in spec.seen if not each.covered],
        "LogConfig": {"Type": "none"},
    }


def processes(limits: SandboxLimits) -> int | None:
    """Return how many processes a container may have: the command's and its own."""
    return None if limits.processes is None else limits.processes + _OWN_PROCESSES


def _ulimits(limits: SandboxLimits) -> list[dict[str, Any]]:
    wanted = {
        "nproc": _USER_PROCESSES,
        "nofile": limits.open_files or _FILES,
        "core": 0,
        "fsize": limits.file_bytes,
    }
    made = [{"Name": n, "Soft": value, "Hard": value} for n, value in wanted.items() if value is not None]
    if limits.cpu_s is not None:  # for a single process, should nobody watch them all together
        seconds = math.ceil(limits.cpu_s) + 1
        made.append({"Name": "cpu", "Soft": seconds, "Hard": seconds + 1})
    return made


def _tmpfs(size: int | None) -> str:
    return "rw,nosuid,nodev,mode=1777" + (f",size={size}" if size else "")


def _empty(podman: bool) -> str:
    """Return an empty cover. Podman would fill it with what is below, unless told not to."""
    return "ro,size=4096" + (",notmpcopyup" if podman else "")


def seccomp_option(podman: bool) -> str:
    """Return the seccomp option: Docker takes the profile itself, Podman a path on its machine."""
    return str(PROFILE) if podman else PROFILE.read_text()


def _mount(spec: ContainerSpec, seen: Seen) -> dict[str, Any]:
    """Return a mount of the workspace, or of a part of it over itself, read-only."""
    return {
        "Type": "bind",
        "Source": f"{spec.workspace}/{seen.path}".rstrip("/"),
        "Target": inside(seen.path),
        "ReadOnly": bool(seen.path) or not spec.writable,
    }


def require_accepted(spec: ContainerSpec, found: Mapping[str, Any]) -> None:
    """Raise `SandboxUnavailable` if the engine made a container with less than was requested."""
    host: Mapping[str, Any] = found["HostConfig"]
    asked = {
        "ReadonlyRootfs": True,
        "NetworkMode": "none",
        "Privileged": False,
        **({"Memory": spec.limits.memory_bytes} if spec.limits.memory_bytes else {}),
        **({"PidsLimit": processes(spec.limits)} if spec.limits.processes else {}),
    }
    ignored = [name for name, value in asked.items() if host.get(name) != value]
    options = " ".join(host.get("SecurityOpt") or [])
    ignored += [name for name in ("no-new-privileges", "seccomp=") if name not in options]
    if ignored:
        raise SandboxUnavailable(
            f"The container engine ignored {', '.join(ignored)}, so nothing is run in its containers. "
            "Use another engine, or another sandbox backend."
        )
