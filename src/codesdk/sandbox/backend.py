"""The sandbox protocol: it takes a command and what that may reach, and returns its output as it comes, and how it ended.

Each backend implements it. A limit or boundary that a backend cannot enforce is stated in its capabilities,
and a command that requires it is refused, never run without it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from codesdk.contract.bounds import Bytes, Interval, Number
from codesdk.contract.errors import InvalidRequest, SandboxUnavailable as SandboxUnavailable
from codesdk.contract.tools import ExecutionEnv
from codesdk.contract.workspace import Workspace

SandboxKind = Literal["bubblewrap", "oci", "host"]
Stream = Literal["stdout", "stderr"]
Output = Callable[[Stream, bytes], None]
"""Takes a running command's output. Never blocks, never raises."""

LimitName = Literal["wall", "cpu", "memory", "processes", "file_size", "open_files", "output", "scratch"]


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a command may use. None means no limit of that kind."""

    wall_s: Interval = 120.0
    cpu_s: Interval | None = None
    memory_bytes: Number | None = 2 * 1024**3
    processes: Number | None = 256
    file_bytes: Bytes | None = 1024**3
    open_files: Number | None = 1024
    output_bytes: Bytes = 16 * 1024**2
    scratch_bytes: Number | None = 256 * 1024**2


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run: without a shell, from an empty environment, in the workspace."""

    session_id: str
    argv: Sequence[str]
    workspace: Workspace
    cwd: str = "."
    env: Mapping[str, str] = {}
    writable: bool = True
    hosts: Sequence[str] = ()
    """Hosts that may be reached, through the egress proxy; none means no network at all."""
    limits: SandboxLimits = SandboxLimits()
    required: frozenset[LimitName] = frozenset()
    """Limits that must be enforced: a backend that cannot refuses the command."""


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `exit_code` is 128 plus the signal if one killed it."""

    exit_code: int
    duration_ms: int
    limits_hit: Sequence[LimitName] = ()
    oom_kills: int = 0
    output_bytes: int = 0
    refused_hosts: Sequence[str] = ()


class SandboxCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do on this machine, found by trying, not assumed."""

    backend: SandboxKind
    available: bool
    execution_env: ExecutionEnv
    limits: frozenset[LimitName] = frozenset()
    filesystem: bool = False
    """Whether files outside the workspace are out of reach."""
    network: bool = False
    """Whether the network is out of reach unless hosts are allowed."""
    egress: bool = False
    """Whether single hosts can be allowed."""
    syscalls: bool = False
    """Whether a system call filter is in place."""
    notes: Sequence[str] = ()
    """What is missing, each with what to do about it."""


def unavailable(kind: SandboxKind, note: str) -> SandboxCapabilities:
    """Return the capabilities of a backend that cannot be used, and why."""
    envs: dict[SandboxKind, ExecutionEnv] = {
        "bubblewrap": "codesdk_bubblewrap",
        "oci": "codesdk_docker",
        "host": "codesdk_host",
    }
    return SandboxCapabilities(backend=kind, available=False, execution_env=envs[kind], notes=[note])


class Sandbox(Protocol):
    """A place to run commands in."""

    async def capabilities(self) -> SandboxCapabilities:
        """Find out what can be enforced here. Cached; must not raise."""
        ...

    async def run(self, command: Command, output: Output) -> CommandEnd:
        """Run a command to its end. If cancelled, every process it started is gone before this returns.

        Raise `SandboxUnavailable` if it cannot be run with what it requires.
        """
        ...

    async def close_session(self, session_id: str) -> None:
        """Release what is kept for a session. Must not raise."""
        ...

    async def close(self) -> None:
        """Release everything. Must not raise."""
        ...


def require(command: Command, found: SandboxCapabilities) -> None:
    """Raise unless the command is valid and everything that it requires can be enforced."""
    if not found.available:
        raise SandboxUnavailable(" ".join(found.notes))
    if missing := sorted(command.required - found.limits):
        notes = " ".join(found.notes)
        raise SandboxUnavailable(
            f"The limit on {', '.join(missing)} is required and cannot be enforced. {notes}"
        )
    if not command.argv or not command.argv[0]:
        raise InvalidRequest("The command is empty; its first part names a program.")
    if any("\0" in part for part in (*command.argv, command.cwd, command.workspace.path)):
        raise InvalidRequest("The command contains a NUL character, which no argument can have.")
    if command.cwd.startswith("/") or ".." in command.cwd.split("/"):
        raise InvalidRequest("The working directory must be inside the workspace, given relative to it.")
    for name, value in command.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f'"{name[:100]}" cannot be the name or value of an environment variable.')
    if command.hosts:
        from codesdk.sandbox.egress import check_hosts  # few commands reach the network

        check_hosts(command.hosts)
