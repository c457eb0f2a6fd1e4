"""What a container is made with: a command's needs → the engine's words for them, all doors shut.

Pure, but for the look at the workspace. `accepted` checks that the engine took them.
"""

import math
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.sandbox.backend import Command, SandboxUnavailable

WORKSPACE = "/workspace"
PROFILE = Path(__file__).with_name("oci_seccomp.json")
_USER = 10_001
_KEEPERS = (65_533, 65_532)
_MB = 1 << 20
_SHARED_MEMORY = 64 * _MB
_SMALL_TMPFS = 64 * 1024
# Limits for all containers of a user together, so no limit for one; but some engines cannot leave it out.
_USER_PROCESSES = 4_096
_FILES = 1_024
_CPU_PERIOD_US = 100_000
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
# Says which directories it sees, then stays until its input ends: the input is ours, so it ends with us.
# A shell that waits also collects the orphans of the container.
_KEEPER = "exec 3<&0; cat <&3 >/dev/null & stat -L -c '%d %i' \"$@\" && echo ready && wait $!; exit 0"


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What containers must have in common to take each other's commands."""

    workspace: str
    writable: bool
    uid: int
    gid: int
    protected: tuple[str, ...]
    """What is mounted read-only over a writable workspace, by name."""
    identities: tuple[tuple[int, int], ...]
    """Device and inode of the workspace and of each protected name, as seen from here."""
    memory_bytes: int | None
    processes: int | None
    file_bytes: int | None
    open_files: int | None
    scratch_bytes: int | None
    cpu_s: float | None

    @property
    def user(self) -> str:
        return f"{self.uid}:{self.gid}"


def container_spec(command: Command, user: tuple[int, int] | None) -> ContainerSpec:
    """Return what a command needs. Raise `InvalidRequest` if its workspace cannot be mounted."""
    root = os.path.realpath(command.workspace)
    identity = _identity(root)
    if identity is None or not Path(root).is_dir():
        raise InvalidRequest(f"The workspace {command.workspace} is not a directory.")
    protected = [name for name in _protected(command) if _identity(f"{root}/{name}")]
    found = [_identity(f"{root}/{name}") for name in protected]
    uid, gid = user or _owner(root)
    limits = command.limits
    return ContainerSpec(
        workspace=root,
        writable=command.writable,
        uid=uid,
        gid=gid,
        protected=tuple(protected),
        identities=(identity, *(pair for pair in found if pair)),
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        file_bytes=limits.file_bytes,
        open_files=limits.open_files,
        scratch_bytes=limits.scratch_bytes,
        cpu_s=limits.cpu_s,
    )


def _protected(command: Command) -> Sequence[str]:
    """Git on the host runs what a hook or its configuration says, so commands cannot write those."""
    return (".git",) if command.writable else ()


def _identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of a directory or a file, None for a link or anything else."""
    try:
        info = os.lstat(path)
    except (OSError, ValueError):
        return None
    kept = stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)
    return (info.st_dev, info.st_ino) if kept else None


def _owner(root: str) -> tuple[int, int]:
    """Commands run as the owner of the workspace, never as root."""
    info = Path(root).stat()
    return info.st_uid or _USER, info.st_gid or _USER


def container_config(
    spec: ContainerSpec, *, image: str, seccomp: str, cpus: float, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of the request that creates the container."""
    keeper = next(uid for uid in _KEEPERS if uid != spec.uid)
    seen = [WORKSPACE, *(f"{WORKSPACE}/{name}" for name in spec.protected)]
    proxies = [f"{name}=" for proxy in _PROXIES for name in (proxy, proxy.upper())]
    return {
        "Image": image,
        "Entrypoint": ["/bin/sh"],
        "Cmd": ["-c", _KEEPER, "sh", *seen],
        "User": f"{keeper}:{keeper}",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Env": proxies,  # some engines hand on their own proxies, with the passwords in them
        "AttachStdin": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Labels": dict(labels),
        "HostConfig": _host_config(spec, seccomp, cpus),
    }


def _host_config(spec: ContainerSpec, seccomp: str, cpus: float) -> dict[str, Any]:
    memory = spec.memory_bytes or 0
    return {
        "AutoRemove": True,
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp}"],
        "IpcMode": "private",
        "PidMode": "",
        "Memory": memory,
        "MemorySwap": memory,
        "PidsLimit": spec.processes or -1,
        "CpuPeriod": _CPU_PERIOD_US,
        "CpuQuota": int(cpus * _CPU_PERIOD_US),
        "Ulimits": _ulimits(spec),
        "ShmSize": min(spec.scratch_bytes or _SHARED_MEMORY, _SHARED_MEMORY),
        "Tmpfs": {
            "/tmp": _tmpfs(spec.scratch_bytes),
            "/run": _tmpfs(_SMALL_TMPFS),
            "/var/tmp": _tmpfs(_SMALL_TMPFS),
        },
        "Mounts": _mounts(spec),
        "LogConfig": {"Type": "none"},
    }


def _ulimits(spec: ContainerSpec) -> list[dict[str, Any]]:
    wanted = {
        "nproc": _USER_PROCESSES,
        "nofile": spec.open_files or _FILES,
        "core": 0,
        "fsize": spec.file_bytes,
    }
    limits = [{"Name": n, "Soft": value, "Hard": value} for n, value in wanted.items() if value is not None]
    if spec.cpu_s is not None:  # for a single process, should nobody watch them all together
        seconds = math.ceil(spec.cpu_s) + 1
        limits.append({"Name": "cpu", "Soft": seconds, "Hard": seconds + 1})
    return limits


def _tmpfs(size: int | None) -> str:
    return "rw,nosuid,nodev,mode=1777" + (f",size={size}" if size else "")


def _mounts(spec: ContainerSpec) -> list[dict[str, Any]]:
    whole = {"Type": "bind", "Source": spec.workspace, "Target": WORKSPACE, "ReadOnly": not spec.writable}
    parts = [
        {
            "Type": "bind",
            "Source": f"{spec.workspace}/{name}",
            "Target": f"{WORKSPACE}/{name}",
            "ReadOnly": True,
        }
        for name in spec.protected
    ]
    return [whole, *parts]


def require_accepted(spec: ContainerSpec, found: Mapping[str, Any]) -> None:
    """Raise `SandboxUnavailable` if the engine made a container with less than what was asked for."""
    host: Mapping[str, Any] = found["HostConfig"]
    asked = {
        "ReadonlyRootfs": True,
        "NetworkMode": "none",
        "Privileged": False,
        **({"Memory": spec.memory_bytes} if spec.memory_bytes else {}),
        **({"PidsLimit": spec.processes} if spec.processes else {}),
    }
    ignored = [name for name, value in asked.items() if host.get(name) != value]
    options = " ".join(host.get("SecurityOpt") or [])
    ignored += [name for name in ("no-new-privileges", "seccomp=") if name not in options]
    if ignored:
        raise SandboxUnavailable(
            f"The container engine ignored {', '.join(ignored)}, so nothing is run in its containers. "
            "Use another engine, or another sandbox backend."
        )
