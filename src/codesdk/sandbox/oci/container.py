"""One container, for one command at a time: made, held by a lease, used, and killed as a whole.

The container's first process ends when its input does, and its input is a connection of ours:
when this process dies, however it dies, the container ends, and with it everything in it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from codesdk.sandbox.backend import Command, SandboxUnavailable, Stream
from codesdk.sandbox.oci.config import WORKSPACE, ContainerSpec, require_accepted
from codesdk.sandbox.oci.counters import Counters
from codesdk.sandbox.oci.engine import Connection, Engine, EngineMissing, EngineRefused

_READY_S = 30.0
_GONE_S = 30.0
_PAUSE_S = 0.02
_LAST_LOOKS = 10
_ATTACH = "stdin=1&stdout=1&stderr=1&stream=1"
_CHUNK = 65_536
_STREAMS: Mapping[int, Stream] = {1: "stdout", 2: "stderr"}
# A program of any name is run as a program, not as a word of the shell; when it ends, whatever it left behind
# is killed: all processes of the user but this one. The shell's own remarks on its end go nowhere.
_RUN = (
    'exec 3>&2 2>/dev/null </dev/null; cd "$1" || { echo "cannot enter the directory" >&3; exit 126; }; shift; '
    '(exec 2>&3 3>&-; exec "$@"); code=$?; kill -9 -1; exit $code'
)

Chunk = Callable[[Stream, bytes], None]


class Container:
    """A running container. `kill` it when it is no longer clean or no longer needed."""

    def __init__(self, engine: Engine, container_id: str, spec: ContainerSpec, lease: Connection) -> None:
        self.spec = spec
        self._engine = engine
        self._id = container_id
        self._lease = lease
        self.counters: Counters | None = None
        self._own: frozenset[int] = frozenset()

    @classmethod
    async def start(cls, engine: Engine, spec: ContainerSpec, config: Mapping[str, Any]) -> "Container":
        """Create and start it. Nothing is left if that fails. Raises as `Engine.call` does."""
        made = await engine.call("create_container_from_config", config)
        container_id: str = made["Id"]
        lease = None
        try:
            lease = await engine.stream(f"/containers/{container_id}/attach?{_ATTACH}")
            container = cls(engine, container_id, spec, lease)
            await engine.call("start", container_id)
            await container._require_ready()
        except BaseException:
            if lease is not None:
                lease.writer.close()
            with contextlib.suppress(SandboxUnavailable):
                await discard(engine, container_id)
            raise
        return container

    async def execute(self, command: Command, env: Mapping[str, str], take: Chunk) -> int:
        """Run a command to its end and return its exit code. Raises as `Engine.call` does."""
        where = f"{WORKSPACE}/{command.cwd}"
        made = await self._engine.call(
            "exec_create",
            self._id,
            ["/bin/sh", "-c", _RUN, "sh", where, *command.argv],
            user=f"{self.spec.user.uid}:{self.spec.user.gid}",
            workdir=WORKSPACE,  # a directory of the command's choice is entered from inside, where links are harmless
            environment=dict(env),
        )
        exec_id: str = made["Id"]
        connection = await self._engine.stream(f"/exec/{exec_id}/start", {"Detach": False, "Tty": False})
        try:
            await _read_frames(connection.reader, take)
        finally:
            connection.writer.close()
        return await self._exit_code(exec_id)

    @property
    def name(self) -> str:
        """Its id, as short as engines show it."""
        return self._id[:12]

    async def runs(self) -> bool:
        """Return whether it still runs."""
        try:
            found = await self._engine.call("inspect_container", self._id)
        except EngineMissing:
            return False
        return bool(found["State"]["Running"])

    def idle(self) -> bool:
        """Return whether it exists with only its own processes alive in it. Unknown means no."""
        return self.counters is not None and self.counters.processes() == self._own

    async def clean(self) -> bool:
        """Return whether it is idle after a command, whose last processes may take a moment to end."""
        for _ in range(_LAST_LOOKS if self.counters else 0):
            if self.idle():
                return True
            await asyncio.sleep(_PAUSE_S)
        return False

    async def kill(self) -> None:
        """End everything in it and remove it; return when it is gone. Raises as `discard` does."""
        self._lease.writer.close()
        await discard(self._engine, self._id)

    async def _exit_code(self, exec_id: str) -> int:
        """Ask until the engine has noticed the end, which comes after the end of the output."""
        while True:
            found = await self._engine.call("exec_inspect", exec_id)
            if not found["Running"]:
                return int(found["ExitCode"])
            await asyncio.sleep(_PAUSE_S)

    async def _require_ready(self) -> None:
        """Wait until the first process has reported what it sees, and compare that with what is here."""
        said = bytearray()
        try:
            async with asyncio.timeout(_READY_S):
                await _read_frames(self._lease.reader, _until_ready(said))
        except _Ready:
            pass
        except TimeoutError:
            raise SandboxUnavailable("A container was started but does not answer.", retryable=True) from None
        lines = said.decode("utf-8", "replace").split("\n")[:-1]
        agree = (seen.agrees(line) for seen, line in zip(self.spec.seen, lines[:-1], strict=True))
        if lines[-1:] != ["ready"] or len(lines) != len(self.spec.seen) + 1 or not all(agree):
            raise SandboxUnavailable(_mismatch(said))
        found = await self._engine.call("inspect_container", self._id)
        require_accepted(self.spec, found)
        self.counters = Counters.of(self._id, int(found["State"]["Pid"]))
        self._own = self.counters.processes() if self.counters else frozenset()


async def discard(engine: Engine, container_id: str) -> None:
    """Kill a container and remove it; return when it is gone. Raise `SandboxUnavailable` if it stays."""
    for name, options in (("kill", {"signal": "SIGKILL"}), ("remove_container", {"force": True})):
        # It may have ended already, and engines remove such a container by themselves, too.
        with contextlib.suppress(EngineRefused):
            await engine.call(name, container_id, **options)
    try:
        async with asyncio.timeout(_GONE_S):
            while await _exists(engine, container_id):  # noqa: ASYNC110 - engines differ in what they tell
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise SandboxUnavailable(f"The container {container_id[:12]} cannot be removed.") from None


async def _exists(engine: Engine, container_id: str) -> bool:
    try:
        await engine.call("inspect_container", container_id)
    except EngineMissing:
        return False
    return True


class _Ready(Exception):
    """The first process has reported everything."""


def _until_ready(said: bytearray) -> Chunk:
    def take(_: Stream, data: bytes) -> None:
        said.extend(data)
        if said.endswith(b"ready\n") or len(said) > _CHUNK:
            raise _Ready

    return take


def _mismatch(said: bytearray) -> str:
    if b"ready" not in said:
        words = said.decode("utf-8", "replace").strip()[:500] or "no message"
        return f"The image cannot be used: it needs /bin/sh, stat and cat, and running them failed ({words})."
    return (
        "The container engine does not see this machine's files: what it mounted is not the workspace. "
        "Use an engine that runs on this machine and outside of containers."
    )


async def _read_frames(reader: asyncio.StreamReader, take: Chunk) -> None:
    """Pass on output until the stream ends. A frame is: its stream, three zeros, its length, its data."""
    try:
        while True:
            head = await reader.readexactly(8)
            stream, left = _STREAMS.get(head[0], "stderr"), int.from_bytes(head[4:], "big")
            while left:
                data = await reader.read(min(left, _CHUNK))
                if not data:
                    return
                left -= len(data)
                take(stream, data)
    except (asyncio.IncompleteReadError, ConnectionError):
        return
