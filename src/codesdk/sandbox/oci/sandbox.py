"""The container sandbox: runs commands inside hardened containers of Docker or Podman.

A session keeps one container for its next command; one container runs one command at a time, so
that killing the container kills the command and nothing else. See docs/sandbox.md.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from codesdk.contract.errors import InvalidRequest
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
from codesdk.sandbox.oci.config import ContainerSpec, container_config, container_spec
from codesdk.sandbox.oci.container import Container
from codesdk.sandbox.oci.counters import Counted
from codesdk.sandbox.oci.engine import Engine, EngineRefused, find_socket
from codesdk.sandbox.oci.facts import Facts, ask, require_possible
from codesdk.sandbox.oci.owner import labels
from codesdk.sandbox.owner import SANDBOX_USER, User
from codesdk.sandbox.process import HIT_BY_SIGNAL, to_the_end
from codesdk.sandbox.survey import Workspaces, open_for_commands

_MAX_IDLE = 16
_CPU_LOOK_S = 0.1
_KILLED = 137
_ENV = {"HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
_log = logging.getLogger(__name__)


class _Run:
    """The state of one command: how much it has printed, and why it was stopped."""

    def __init__(self, command: Command, output: Output) -> None:
        self.command = command
        self.started = time.monotonic()
        self.output_bytes = 0
        self.stopped: set[LimitName] = set()
        self._output = output

    def take(self, stream: Stream, data: bytes) -> None:
        """Pass output on; raise `_Stopped` when there is too much."""
        left = self.command.limits.output_bytes - self.output_bytes
        self.output_bytes += len(data)
        if left > 0:
            self._output(stream, data[:left])
        if len(data) > left:
            self.stopped.add("output")
            raise _Stopped

    def end(self, code: int, counted: Counted) -> CommandEnd:
        """Return how it ended, with the limits that it reached."""
        hit = set(self.stopped)
        hit |= {"memory"} if counted.oom_kills else set()
        hit |= {"processes"} if counted.forks_refused else set()
        hit |= {HIT_BY_SIGNAL[code]} if code in HIT_BY_SIGNAL else set()
        return CommandEnd(
            exit_code=code,
            duration_ms=round((time.monotonic() - self.started) * 1000),
            limits_hit=tuple(sorted(hit)),
            oom_kills=counted.oom_kills,
            output_bytes=min(self.output_bytes, self.command.limits.output_bytes),
        )


class _Stopped(Exception):
    """The command reached a limit that is enforced from here."""


class _Kept:
    """What is kept for a session between commands."""

    idle: Container | None = None


class OciSandbox:
    """Runs commands in containers. Implements `Sandbox`.

    `image` must be in the engine already and needs `/bin/sh`, `stat` and `cat`. `engine` is the engine's socket.
    `user`, `give_workspace` and `hard_links` are as for bubblewrap. `cpus` is how many processors a container gets.
    """

    def __init__(
        self,
        image: str,
        *,
        engine: str | None = None,
        user: User = SANDBOX_USER,
        give_workspace: bool = False,
        hard_links: Literal["protect", "allow"] = "protect",
        cpus: float = 2.0,
    ) -> None:
        self._image = image
        self._address = engine
        self._links = hard_links == "protect"
        self._cpus = cpus
        self._engine: Engine | None = None
        self._facts: Facts | None = None
        self._looking = asyncio.Lock()
        self._workspaces = Workspaces(user, give_workspace=give_workspace, protect_links=self._links)
        self._sessions: OrderedDict[str, _Kept] = OrderedDict()
        self._busy: set[Container] = set()
        self._running: set[asyncio.Future[None]] = set()
        self._closed = False

    async def capabilities(self) -> SandboxCapabilities:
        try:
            facts, _ = await self._look()
        except SandboxUnavailable as error:
            return unavailable("oci", error.message)
        return SandboxCapabilities(
            backend="oci",
            available=True,
            execution_env="codesdk_docker",
            limits=facts.limits,
            filesystem=True,
            network=True,
            egress=False,
            syscalls=True,
            notes=facts.notes,
        )

    async def run(self, command: Command, output: Output) -> CommandEnd:
        require(command, await self.capabilities())
        require_possible(command)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running.add(ended)
        try:
            return await self._run(_Run(command, output), await self._confine(command))
        finally:
            self._running.discard(ended)
            ended.set_result(None)

    async def _run(self, run: _Run, spec: ContainerSpec) -> CommandEnd:
        session_id = run.command.session_id
        kept = self._sessions.setdefault(session_id, _Kept())
        container = await self._take(kept, spec)
        self._busy.add(container)
        try:
            if self._closed:
                raise _closed()
            end, reusable = await self._execute(container, run)
        except BaseException:
            await to_the_end(self._drop(container))
            raise
        await to_the_end(self._keep(session_id, kept, container) if reusable else self._drop(container))
        return end

    async def close_session(self, session_id: str) -> None:
        self._workspaces.forget(session_id)
        kept = self._sessions.pop(session_id, None)
        if kept is not None and kept.idle is not None:
            await self._drop(kept.idle)

    async def close(self) -> None:
        self._closed = True
        idle = [kept.idle for kept in self._sessions.values() if kept.idle is not None]
        self._sessions.clear()
        await asyncio.gather(*(self._drop(container) for container in [*idle, *self._busy]))
        if self._running:
            await asyncio.wait(self._running)
        if self._engine is not None:
            self._engine.close()

    async def _look(self) -> tuple[Facts, Engine]:
        """Find the engine and ask what it can do; at the first use also remove what dead processes left."""
        if self._closed:
            raise _closed()
        async with self._looking:
            if self._facts is None or self._engine is None:
                engine = Engine(find_socket(self._address))
                try:
                    self._facts = await ask(engine, self._image)
                except BaseException:
                    engine.close()
                    raise
                self._engine = engine
            return self._facts, self._engine

    async def _confine(self, command: Command) -> ContainerSpec:
        """Look at the workspace, and at the files in it that need protection."""
        place = open_for_commands(command.workspace)
        try:
            user, found = await self._workspaces.look(command, place)
            return container_spec(command, place, user, found, links=self._links)
        except FileNotFoundError:
            raise InvalidRequest(
                "The workspace's .git was there and is gone; open the session again."
            ) from None
        finally:
            os.close(place)

    async def _take(self, kept: _Kept, spec: ContainerSpec) -> Container:
        """Return the session's idle container if it will do, else a new one."""
        container, kept.idle = kept.idle, None
        if container is not None and container.spec == spec and container.idle():
            return container
        if container is not None:
            await to_the_end(self._drop(container))
        facts, engine = await self._look()
        config = container_config(
            spec,
            image=self._image,
            podman=facts.podman,
            cpus=min(self._cpus, facts.cpus),
            labels=labels(),
        )
        starting = asyncio.ensure_future(Container.start(engine, spec, config))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await to_the_end(self._unwanted(starting))
            raise
        except EngineRefused as error:
            raise SandboxUnavailable(f"The container engine refused to start a container: {error}") from None

    async def _execute(self, container: Container, run: _Run) -> tuple[CommandEnd, bool]:
        """Run the command. Return how it ended, and whether its container may be used again."""
        command, counters = run.command, container.counters
        if counters is None and "cpu" in command.required:
            raise SandboxUnavailable(
                "The processor time of the container engine's containers cannot be seen here."
            )
        before = counters.now() if counters else Counted()

        def counted() -> Counted:
            return counters.now().since(before) if counters else Counted()

        env = _ENV | dict(command.env)
        watch = asyncio.ensure_future(_watch_cpu(command.limits.cpu_s, counted))
        work = asyncio.ensure_future(container.execute(command, env, run.take))
        run.started = time.monotonic()
        try:
            await asyncio.wait(
                [watch, work], timeout=command.limits.wall_s, return_when=asyncio.FIRST_COMPLETED
            )
            if work.done():
                return run.end(work.result(), counted()), await container.clean()
            run.stopped.add("cpu" if watch.done() else "wall")
        except _Stopped:
            pass
        except EngineRefused as error:
            if await container.runs():
                raise SandboxUnavailable(
                    f"The container engine refused to run the command: {error}"
                ) from None
        finally:
            await _cancelled(watch, work)
        return run.end(_KILLED, counted()), False

    async def _keep(self, session_id: str, kept: _Kept, container: Container) -> None:
        """Keep a container for the session's next command, unless there is one or the session is closed."""
        self._busy.discard(container)
        if self._sessions.get(session_id) is not kept or kept.idle is not None:
            await self._drop(container)
            return
        kept.idle = container
        self._sessions.move_to_end(session_id)
        idle = [session for session, its in self._sessions.items() if its.idle is not None]
        for session in idle[: max(0, len(idle) - _MAX_IDLE)]:
            await self.close_session(session)

    async def _unwanted(self, starting: Awaitable[Container]) -> None:
        """Let a container start, since that cannot be aborted, and drop it."""
        with contextlib.suppress(EngineRefused, SandboxUnavailable):
            await self._drop(await starting)

    async def _drop(self, container: Container) -> None:
        self._busy.discard(container)
        try:
            await container.kill()
        except SandboxUnavailable as error:
            _log.warning("The container %s may be left behind: %s", container.name, error.message)


def _closed() -> SandboxUnavailable:
    return SandboxUnavailable("The sandbox is closed.")


async def _watch_cpu(limit_s: float | None, counted: Callable[[], Counted]) -> None:
    """Return when all processes together have used up their CPU time; never, if there is no limit."""
    if limit_s is None:
        await asyncio.get_running_loop().create_future()
    while limit_s is not None and counted().cpu_s < limit_s:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(_CPU_LOOK_S)


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
