"""Commands in their own namespaces, through bubblewrap: the default sandbox on Linux.

Uses `confinement` for what is in reach, `launch` for starting and killing, `cgroups` for limits on the whole,
`egress` for the network, `owner` for the user it runs as and `survey` for what it must not change.
"""

import asyncio
import errno
import os
import platform
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal

from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import (
    Command,
    CommandEnd,
    LimitName,
    Output,
    SandboxCapabilities,
    SandboxUnavailable,
    Stream,
    require,
    unavailable,
)
from codesdk.sandbox.bubblewrap import cgroups
from codesdk.sandbox.bubblewrap.confinement import PRLIMIT, Confinement, Descriptors, arguments, limited
from codesdk.sandbox.bubblewrap.launch import Launch
from codesdk.sandbox.bubblewrap.netns import listen_inside
from codesdk.sandbox.bubblewrap.seccomp import compile_filter
from codesdk.sandbox.egress import INTERNET, EgressProxy, Internet, proxy_environment
from codesdk.sandbox.owner import SANDBOX_USER, User, unreachable, user_for
from codesdk.sandbox.process import HIT_BY_SIGNAL, Overseer, Pipes, overseen, to_the_end
from codesdk.sandbox.survey import Workspaces, open_for_commands, open_found

PROGRAMS = ("/usr/local/bin/bwrap", "/usr/bin/bwrap", "/bin/bwrap")
NOT_INSTALLED = "bubblewrap is not installed; on Debian or Ubuntu: apt install bubblewrap."
_OWN_PROCESSES = 1
_SIGKILL = 128 + 9
_ALWAYS: frozenset[LimitName] = frozenset({"wall", "output", "scratch", "file_size", "open_files"})
_REMOVE_TRIES = 50


class BubblewrapSandbox:
    """Runs commands through bubblewrap. Implements `Sandbox`.

    `user` runs the commands if both this process and the workspace belong to root; `give_workspace` gives it
    what root owns there. `readable` are more host paths that commands may read, for tools outside /usr.
    `hard_links="allow"` leaves files writable that have other names outside the workspace.
    `allow_unfiltered` runs without a system call filter on machines that have none.
    """

    def __init__(
        self,
        *,
        user: User = SANDBOX_USER,
        give_workspace: bool = False,
        readable: Sequence[str] = (),
        hard_links: Literal["protect", "allow"] = "protect",
        allow_unfiltered: bool = False,
        internet: Internet = INTERNET,
    ) -> None:
        self._user = user
        self._readable = readable
        self._protect_links = hard_links == "protect"
        self._allow_unfiltered = allow_unfiltered
        self._internet = internet
        self._filter = compile_filter()
        self._cgroups = cgroups.detect()
        self._workspaces = Workspaces(user, give_workspace=give_workspace, protect_links=self._protect_links)
        self._found: SandboxCapabilities | None = None

    async def capabilities(self) -> SandboxCapabilities:
        """Find out what can be enforced here by running a command, once."""
        if self._found is None:
            problem = await self._try()
            self._found = self._describe() if problem is None else unavailable("bubblewrap", problem)
        return self._found

    async def run(self, command: Command, output: Output) -> CommandEnd:
        """Run a command to its end, as the protocol says."""
        require(command, await self.capabilities())
        fds = Descriptors()
        try:
            wanted = await self._confine(command, fds)
            return await self._run(command, wanted, fds, output)
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise InvalidRequest("The command and its environment are too long for the system.") from None
            raise SandboxUnavailable(f"The sandbox could not be set up: {error.strerror}.") from None
        finally:
            fds.close()

    async def close_session(self, session_id: str) -> None:
        """Forget the survey of its workspace."""
        self._workspaces.forget(session_id)

    async def close(self) -> None:
        """Nothing is held open."""

    async def _try(self) -> str | None:
        """Run a command that does nothing, the way others will be run. Return why that fails, if it does."""
        if find_program() is None:
            return NOT_INSTALLED
        if not os.access(PRLIMIT, os.X_OK):
            return f"{PRLIMIT} is missing; on Debian or Ubuntu: apt install util-linux."
        if self._filter is None and not self._allow_unfiltered:
            return f"There is no system call filter for {platform.machine()} yet, so commands could reach too much."
        if self._cgroups is not None:
            self._cgroups.sweep()
        fds = Descriptors()
        try:
            place = fds.keep(os.open("/usr", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            command = Command(
                session_id="", argv=["/usr/bin/true"], workspace=Workspace("/usr"), writable=False
            )
            wanted = Confinement(user_for(os.fstat(place), self._user), place, False, ".", {}, command.limits)
            end = await self._run(command, wanted, fds, _ignore)
        except CodeSDKError as error:
            return error.message
        except OSError as error:
            return f"bubblewrap cannot be started: {error.strerror}."
        finally:
            fds.close()
        return None if end.exit_code == 0 else f"A command that does nothing ended with {end.exit_code}."

    def _describe(self) -> SandboxCapabilities:
        limits: set[LimitName] = set(_ALWAYS)
        notes: list[str] = []
        if self._cgroups is not None:
            limits |= self._cgroups.limits
        else:
            notes.append(
                "Memory and CPU time are limited for each process only, not for all together: no control groups "
                "can be made here. Run as a systemd service with Delegate=yes and DelegateSubgroup, or as root."
            )
        if _counts_by_namespace():
            limits.add("processes")
        if self._filter is None:
            notes.append(
                f"There is no system call filter for {platform.machine()}; you chose to run without."
            )
        if os.geteuid() == 0:
            notes.append(
                f"Started by root: commands run as the workspace's owner, or as user {self._user.uid} if that is root."
            )
        return SandboxCapabilities(
            backend="bubblewrap",
            available=True,
            execution_env="codesdk_bubblewrap",
            limits=frozenset(limits),
            filesystem=True,
            network=True,
            egress=True,
            syscalls=self._filter is not None,
            notes=notes,
        )

    async def _confine(self, command: Command, fds: Descriptors) -> Confinement:
        """Open the workspace and the files in it that need protection."""
        workspace = fds.keep(open_for_commands(command.workspace))
        user, found = await self._workspaces.look(command, workspace)
        shielded = found.linked if self._protect_links and command.writable else ()
        return Confinement(
            user=user,
            workspace=workspace,
            writable=command.writable,
            cwd=command.cwd,
            env=(proxy_environment() if command.hosts else {}) | dict(command.env),
            limits=command.limits,
            git=fds.keep(_open_git(workspace)) if found.has_git and command.writable else None,
            shielded=[(fds.keep(open_found(workspace, each)), each.path) for each in shielded],
            covered=[each.path for each in found.covered],
            readable=self._readable,
        )

    async def _run(
        self, command: Command, wanted: Confinement, fds: Descriptors, output: Output
    ) -> CommandEnd:
        program = find_program()
        if program is None:
            raise SandboxUnavailable(NOT_INSTALLED)
        alone = self._cgroups is None
        argv = limited(
            command.argv, command.limits, count_processes=alone and _counts_by_namespace(), bound_memory=alone
        )
        async with AsyncExitStack() as held:
            group = None
            if self._cgroups is not None:
                group = self._cgroups.create(command.limits, spare=_OWN_PROCESSES)
                held.push_async_callback(_remove, group)
            launch = Launch(program, arguments(wanted, self._filter, fds), argv, fds, wanted.user)
            held.callback(launch.close)
            proxy = EgressProxy(command.hosts, self._internet) if command.hosts else None
            return await _Life(command, wanted.user, launch, group, proxy).lived(output)


class _Life:
    """One command, from its start to its end."""

    def __init__(
        self,
        command: Command,
        user: User,
        launch: Launch,
        group: cgroups.Group | None,
        proxy: EgressProxy | None,
    ) -> None:
        self._command = command
        self._user = user
        self._launch = launch
        self._group = group
        self._proxy = proxy
        self._began = time.monotonic()

    async def lived(self, output: Output) -> CommandEnd:
        """Wait for the end and return how it ended."""
        launch = self._launch
        with overseen(launch.process, self._command.limits, output, launch.kill) as (overseer, pipes):
            await to_the_end(self._live(overseer), launch.kill)
        return self._end(overseer, pipes)

    async def _live(self, overseer: Overseer) -> None:
        try:
            if await self._launch.held():
                await self._fence_in(overseer)
                self._launch.let_go()
        except ProcessLookupError:
            pass  # bubblewrap gave up; its message is reported
        except OSError as error:
            self._launch.kill()
            raise SandboxUnavailable(f"The sandbox could not be set up: {error.strerror or error}.") from None
        finally:
            await self._launch.gone()
            if self._proxy is not None:
                await self._proxy.close()

    async def _fence_in(self, overseer: Overseer) -> None:
        """Set up limits and the egress proxy before the command starts."""
        pid = self._launch.first_pid
        assert pid is not None, "it is held"
        if self._group is not None:
            self._group.add(pid)  # not bubblewrap itself outside: each move takes the kernel a while
            if self._command.limits.cpu_s is not None:
                overseer.watch_cpu(self._group.cpu_s, self._command.limits.cpu_s)
        if self._proxy is not None:
            await self._proxy.serve(await asyncio.to_thread(listen_inside, pid))

    def _end(self, overseer: Overseer, pipes: Pipes) -> CommandEnd:
        oom_kills = self._group.oom_kills() if self._group else 0
        code = self._launch.exit_code
        if code is None:
            if not self._launch.killed and not oom_kills:
                raise self._failure(pipes.last_words.decode(errors="replace"))
            code = _SIGKILL
        hit: list[LimitName] = [overseer.hit] if overseer.hit else []
        if oom_kills:
            hit.append("memory")
        if self._group is not None and self._group.refused_forks():
            hit.append("processes")
        if code in HIT_BY_SIGNAL:
            hit.append(HIT_BY_SIGNAL[code])
        return CommandEnd(
            exit_code=code,
            duration_ms=round((time.monotonic() - self._began) * 1000),
            limits_hit=tuple(dict.fromkeys(hit)),
            oom_kills=oom_kills,
            output_bytes=pipes.taken,
            refused_hosts=tuple(self._proxy.refused) if self._proxy else (),
        )

    def _failure(self, said: str) -> CodeSDKError:
        """Return why the command never started."""
        words = said.rpartition("bwrap: ")[2].strip()
        if words.startswith("Can't chdir"):
            return InvalidRequest(f'There is no directory "{self._command.cwd}" in the workspace.')
        if os.geteuid() == 0 and (place := unreachable(self._command.workspace.path, self._user)):
            return InvalidRequest(
                f"Commands run as user {self._user.uid}, who may not pass {place} on the way to the workspace. "
                f"Move the workspace, or allow that: chmod o+x {place}."
            )
        hint = ""
        if words.startswith("Unknown option"):
            hint = " It is too old: take 0.10, or a distribution's 0.8 with its security updates."
        if "namespace" in words or "uid map" in words:
            hint = " User namespaces may be switched off for ordinary users; docs/sandbox.md says how to allow them."
        return SandboxUnavailable(
            f"bubblewrap could not set the sandbox up: {words or 'it said nothing'}.{hint}"
        )


def find_program() -> str | None:
    """Return bubblewrap from a folder that only root can write: the search path may include the workspace."""
    return next((path for path in PROGRAMS if os.access(path, os.X_OK)), None)


def _ignore(stream: Stream, data: bytes) -> None:
    """Discard output."""


def _counts_by_namespace() -> bool:
    """Return whether the kernel counts processes per user namespace: before Linux 5.14 it did so per user."""
    major, minor = platform.release().split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)))) >= (5, 14)


def _open_git(workspace: int) -> int:
    return os.open(".git", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=workspace)


async def _remove(group: cgroups.Group) -> None:
    """Remove a group. The kernel may take a moment to see that it is empty; if too long, `sweep` does it."""
    for _ in range(_REMOVE_TRIES):
        if group.remove():
            return
        await asyncio.sleep(0.01)
