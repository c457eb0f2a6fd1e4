"""Builds the arguments of bubblewrap for a command and its limits, and the data that it reads from descriptors.

Pure except for the descriptors. Each option answers an attack in docs/sandbox.md; the order matters.
"""

import contextlib
import math
import os
import resource
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from codesdk.sandbox.backend import SandboxLimits
from codesdk.sandbox.owner import User

HOME = "/home/sandbox"
WORKSPACE = "/workspace"
PRLIMIT = "/usr/bin/prlimit"
PATH = "/usr/local/bin:/usr/bin:/bin"
_SHARED_MEMORY_BYTES = 16 << 20
_READ_FROM_ETC = ("alternatives", "ld.so.cache", "ssl/certs", "ssl/openssl.cnf", "localtime")
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MAX_RLIMIT = (1 << 63) - 1


class Descriptors:
    """Descriptors for a program to inherit. Close them once it has started."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def keep(self, fd: int) -> int:
        """Take over a descriptor."""
        self.held.append(fd)
        return fd

    def data(self, content: bytes) -> int:
        """Return a new descriptor from which some bytes can be read, once."""
        fd = self.keep(os.memfd_create("codesdk"))
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def close(self) -> None:
        """Close all of them, once."""
        while self.held:
            with contextlib.suppress(OSError):
                os.close(self.held.pop())


class Confinement(NamedTuple):
    """What a command may reach. `git` and `shielded` are open and become read-only, `covered` empty."""

    user: User
    workspace: int
    writable: bool
    cwd: str
    env: Mapping[str, str]
    limits: SandboxLimits
    git: int | None = None
    shielded: Sequence[tuple[int, str]] = ()
    covered: Sequence[str] = ()
    readable: Sequence[str] = ()


def arguments(wanted: Confinement, seccomp: bytes | None, fds: Descriptors) -> list[str]:
    """Return bubblewrap's arguments, up to the command."""
    made = [*_namespaces(), *_environment(wanted.env), *_system(wanted, fds), *_devices(wanted.limits)]
    for path in wanted.readable:
        made += ["--ro-bind", path, path]
    directory = os.path.normpath(f"{WORKSPACE}/{wanted.cwd}")
    # The root becomes read-only last: until then mount points are made in it.
    made += [*_workspace(wanted), "--remount-ro", "/", "--chdir", directory]
    if seccomp is not None:
        made += ["--seccomp", str(fds.data(seccomp))]
    return made


def _namespaces() -> list[str]:
    kinds = ("user", "pid", "net", "ipc", "uts", "cgroup")
    # No further user namespace: whoever makes one is root in it, and reaches more of the kernel.
    more = "--disable-userns --hostname sandbox --die-with-parent --new-session --cap-drop ALL"
    return [*(f"--unshare-{kind}" for kind in kinds), *more.split()]


def _environment(env: Mapping[str, str]) -> list[str]:
    base = {
        "PATH": PATH,
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "USER": "sandbox",
        "SHELL": "/bin/sh",
    }
    made = ["--clearenv"]
    for name, value in (base | dict(env)).items():
        made += ["--setenv", name, value]
    return made


def _system(wanted: Confinement, fds: Descriptors) -> list[str]:
    """Show the programs and libraries of the host, read-only, and as much of /etc as they need."""
    made = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        if os.path.islink(f"/{name}"):  # noqa: PTH114 - strings all the way
            made += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]  # noqa: PTH115
        elif os.path.isdir(f"/{name}"):  # noqa: PTH112
            made += ["--ro-bind", f"/{name}", f"/{name}"]
    made += ["--dir", "/etc"]
    for name in _READ_FROM_ETC:
        made += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    uid, gid = wanted.user
    files = {
        "passwd": f"root:x:0:0::/:/bin/false\nsandbox:x:{uid}:{gid}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        "group": f"root:x:0:\nsandbox:x:{gid}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    }
    for name, content in files.items():
        made += ["--perms", "0644", "--ro-bind-data", str(fds.data(content.encode())), f"/etc/{name}"]
    return made


def _devices(limits: SandboxLimits) -> list[str]:
    scratch = [] if limits.scratch_bytes is None else ["--size", str(limits.scratch_bytes)]
    return [
        *["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"],
        *f"--size {_SHARED_MEMORY_BYTES} --tmpfs /dev/shm --remount-ro /dev".split(),
        *("--perms", "1777", *scratch, "--tmpfs", "/tmp", *scratch, "--tmpfs", HOME),
    ]


def _workspace(wanted: Confinement) -> list[str]:
    made = ["--bind-fd" if wanted.writable else "--ro-bind-fd", str(wanted.workspace), WORKSPACE]
    if wanted.git is not None:
        made += ["--ro-bind-fd", str(wanted.git), f"{WORKSPACE}/.git"]
    for fd, path in wanted.shielded:
        made += ["--ro-bind-fd", str(fd), f"{WORKSPACE}/{path}"]
    for path in wanted.covered:
        made += ["--size", "4096", "--tmpfs", f"{WORKSPACE}/{path}", "--remount-ro", f"{WORKSPACE}/{path}"]
    return made


def limited(
    argv: Sequence[str], limits: SandboxLimits, *, count_processes: bool, bound_memory: bool
) -> list[str]:
    """Return a command with per-process limits in front.

    `count_processes` and `bound_memory` if no control group does that for all processes together.
    """
    wanted: dict[str, tuple[int, int | None]] = {
        "core": (resource.RLIMIT_CORE, 0),
        "fsize": (resource.RLIMIT_FSIZE, limits.file_bytes),
        "nofile": (resource.RLIMIT_NOFILE, limits.open_files),
        "nproc": (resource.RLIMIT_NPROC, limits.processes if count_processes else None),
        "data": (resource.RLIMIT_DATA, limits.memory_bytes if bound_memory else None),
    }
    made = [PRLIMIT]
    made += [
        f"--{name}={_allowed(kind, value)}" for name, (kind, value) in wanted.items() if value is not None
    ]
    if limits.cpu_s is not None:
        seconds = math.ceil(limits.cpu_s)
        made.append(f"--cpu={seconds}:{_allowed(resource.RLIMIT_CPU, seconds + 1)}")
    return [*made, "--", *argv]


def _allowed(kind: int, value: int) -> int:
    """Return the value, or our own hard limit if that is lower."""
    hard = resource.getrlimit(kind)[1]
    return min(value, _MAX_RLIMIT if hard == resource.RLIM_INFINITY else hard)
