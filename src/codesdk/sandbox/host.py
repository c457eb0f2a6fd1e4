"""Commands run directly on the host, with all rights of this process: only where the operator says so.

There is no boundary. Only time, output and a few per-process limits are enforced; the capabilities say so.
"""

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import time

from codesdk.contract.errors import InvalidRequest
from codesdk.processes import own_guard, readable
from codesdk.sandbox.backend import (
    Command,
    CommandEnd,
    LimitName,
    Output,
    SandboxCapabilities,
    SandboxLimits,
    SandboxUnavailable,
    require,
)
from codesdk.sandbox.bubblewrap.confinement import PATH, PRLIMIT, limited
from codesdk.sandbox.files.paths import Beneath, Missing, NotAFolder, PathRefused, split_folder
from codesdk.sandbox.process import HIT_BY_SIGNAL, overseen, to_the_end

_TRIES = 100
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


class HostSandbox:
    """Runs commands unconfined. Implements `Sandbox`, in name only."""

    async def capabilities(self) -> SandboxCapabilities:
        """Return how little is enforced."""
        limits: set[LimitName] = {"wall", "output"}
        if os.access(PRLIMIT, os.X_OK):
            limits |= {"file_size", "open_files"}
        return SandboxCapabilities(
            backend="host",
            available=True,
            execution_env="codesdk_host",
            limits=frozenset(limits),
            notes=[
                f"Commands can do everything that {'root' if os.geteuid() == 0 else 'this user'} can: read and write "
                "all files, use the network, and leave processes behind that have made a session of their own."
            ],
        )

    async def run(self, command: Command, output: Output) -> CommandEnd:
        """Run a command to its end. What is still in its process group then is killed."""
        require(command, await self.capabilities())
        began = time.monotonic()
        try:
            own_guard()
        except OSError as error:
            raise SandboxUnavailable(
                f"The command was not run: /bin/sh could not be started to watch it ({error.strerror})."
            ) from None
        try:
            process = _start(command)
        except OSError as error:
            return _not_started(command, error, output, began)
        kill = functools.partial(_kill, process)
        with overseen(process, command.limits, output, kill) as (overseer, pipes):
            await to_the_end(_ended(process), kill)
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        hit = overseer.hit or HIT_BY_SIGNAL.get(code)
        return CommandEnd(
            exit_code=code,
            duration_ms=round((time.monotonic() - began) * 1000),
            limits_hit=(hit,) if hit else (),
            output_bytes=pipes.taken,
        )

    async def close_session(self, session_id: str) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is kept."""


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process group unless its leader was already reaped: then its number may be another's."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _ended(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the command has ended, then kill what it left in its group."""
    if hasattr(os, "pidfd_open"):
        fd = os.pidfd_open(process.pid)
        try:
            await readable(fd)
        finally:
            os.close(fd)
        _kill(process)  # before it is reaped, while the number of its group is still its own
        process.wait()
    else:
        await asyncio.to_thread(process.wait)
    for _ in range(_TRIES):
        try:
            os.killpg(process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return
        await asyncio.sleep(0.01)  # killed, but not gone yet


def _start(command: Command) -> "subprocess.Popen[bytes]":
    try:
        with Beneath(command.workspace) as files, files.folder(split_folder(command.cwd)) as folder:
            return _start_in(folder, command)
    except (Missing, NotAFolder):
        raise InvalidRequest(f'There is no directory "{command.cwd}" in the workspace.') from None
    except PathRefused as error:
        raise InvalidRequest(f"The command was not run: {error}.") from None


def _start_in(folder: int, command: Command) -> "subprocess.Popen[bytes]":
    """Start it in an open directory: by its path, it could be another one by then."""
    limits = command.limits
    plain = SandboxLimits(file_bytes=limits.file_bytes, open_files=limits.open_files, cpu_s=limits.cpu_s)
    argv = list(command.argv)
    if os.access(PRLIMIT, os.X_OK):
        argv = limited(argv, plain, count_processes=False, bound_memory=False)
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=f"/proc/self/fd/{folder}",  # entered before the new process closes what it inherited
        env={"PATH": PATH, "LANG": "C.UTF-8", **command.env, **own_guard().variables},
        start_new_session=True,
    )


def _not_started(command: Command, error: OSError, output: Output, began: float) -> CommandEnd:
    """Report a failed start the way a shell would."""
    words = f"{command.argv[0]}: {error.strerror}\n".encode()
    output("stderr", words)
    return CommandEnd(
        exit_code=_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE,
        duration_ms=round((time.monotonic() - began) * 1000),
        output_bytes=len(words),
    )
