"""One `opencode serve` for one live session: started locked down, checked, with the session's one conversation.

It outlives a task, because starting it takes seconds. One that was killed is started again, and goes on with the
conversation that it keeps in its database.
"""

import asyncio
import contextlib
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, Sequence
from functools import partial

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.contract.workspace import Workspace
from codesdk.processes import Child, start_child
from codesdk.runtimes.opencode import NAME, Dialect
from codesdk.runtimes.opencode.config import (
    AGENT,
    PERMISSION,
    configuration,
    make_folders,
    own_variables,
    working_folder,
)
from codesdk.runtimes.opencode.copy import forget
from codesdk.runtimes.opencode.wire_v1 import Refused, Unreachable, WireV1
from codesdk.runtimes.program.endings import crash_of, shorten
from codesdk.runtimes.program.environment import Places, tokens_in, variables
from codesdk.runtimes.program.framing import TooLong, read_lines
from codesdk.runtimes.program.jsonrpc import Frame, Garbage, Gone, as_dict, as_list
from codesdk.runtimes.program.occupancy import Occupancy, occupy
from codesdk.tools import SERVER

START_S = 50.0
STOP_S = 1.0
MAX_WAITING = 1_000
TITLE = "CodeSDK"
"""The title of every conversation: without one opencode asks a model for it."""
_LISTENING = re.compile(rb"opencode server listening on (http://127\.0\.0\.1:\d{1,5})/?\s*$")
_NOISE = frozenset(
    {
        "catalog.updated",
        "integration.updated",
        "plugin.added",
        "reference.updated",
        "server.connected",
        "server.heartbeat",
    }
)
"""What it says of its own start, and that it lives."""
_LONGEST_LINE = 64 * 1024


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is started with. Another setup needs another server."""

    program: tuple[str, ...]
    """The command that starts it, without arguments."""
    version: str
    dialect: Dialect
    model: str
    model_url: str
    tool_url: str
    instructions: tuple[str, ...] = ()
    """What the model is told first: ours or the session's, then the workspace's."""
    max_output_tokens: int


class OpencodeServer:
    """A running program, the connection to it, and its conversation."""

    def __init__(
        self, setup: Setup, places: Places, child: Child, password: str, occupancy: Occupancy
    ) -> None:
        self.setup = setup
        self.child = child
        self.session_id: str | None = None
        self.frames: asyncio.Queue[Frame | Garbage | Gone] = asyncio.Queue(MAX_WAITING)
        """What it says while a task listens. Bounded, so that a slow reader slows the connection."""
        self.listening = False
        self._places = places
        self._password = password
        self._occupancy = occupancy
        self._wire: WireV1 | None = None
        self._gone = False
        self._noise: list[Garbage] = []
        """What it wrote to its stdout since the last task."""
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._work = [asyncio.create_task(self._read_stdout())]

    @classmethod
    async def start(cls, setup: Setup, places: Places, env: RuntimeEnv) -> "OpencodeServer":
        """Start the program, and check that it is what it should be and does what it was told."""
        password = secrets.token_urlsafe(32)
        write = partial(make_folders, places, setup.version)
        occupancy = await asyncio.to_thread(occupy, places, write)
        configured = configuration(
            setup.dialect,
            setup.model,
            setup.model_url,
            setup.tool_url,
            setup.instructions,
            setup.max_output_tokens,
        )
        child = await start_child(
            [*setup.program, "serve", "--hostname", "127.0.0.1", "--port", "0", "--log-level", "ERROR"],
            cwd=Workspace(str(working_folder(places))),
            env=variables(places, env, own_variables(configured, password)),
            secrets=[*_tokens(setup), password],
        )
        server = cls(setup, places, child, password, occupancy)
        try:
            async with _failing_as(server), asyncio.timeout(START_S):
                await server._connect()
        except BaseException:
            await server.stop()
            raise
        return server

    @property
    def wire(self) -> WireV1:
        """The connection. Only after the start."""
        assert self._wire is not None, "the server was started"
        return self._wire

    @property
    def alive(self) -> bool:
        """Whether it still takes requests."""
        return not self._gone and self.child.exit_code is None

    async def resume_session(self, known: str | None) -> bool:
        """Go on with a conversation that opencode has written down. Return whether it has that."""
        if known is None or not known.replace("_", "").isalnum():
            return False
        async with _failing_as(self):
            if not await self.wire.messages(known):
                return False
        self.session_id = known
        return True

    async def start_session(self) -> None:
        """Begin a conversation. What the program had before is left behind."""
        async with _failing_as(self):
            self.session_id = await self.wire.create_session(TITLE)

    def listen(self) -> list[Garbage]:
        """Begin to take what the program says. Return what it wrote to its stdout until now."""
        while not self.frames.empty():
            self.frames.get_nowait()
        if self._gone:
            self.frames.put_nowait(Gone())
        noise, self._noise = self._noise, []
        self.listening = True
        return noise

    async def crash(self) -> TaskFailure:
        """Return the error of a program that ended, with the end of its stderr."""
        return await crash_of(self.child, "opencode", NAME, STOP_S)

    async def stop(self) -> None:
        """End the program with all it started, and remove what nobody needs of what it leaves. Must not raise."""
        await self.child.stop(STOP_S)
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._wire is not None:
            await self._wire.close()
        self._gone = True
        clean = partial(_remove_leftovers, self._places, _tokens(self.setup))
        await asyncio.to_thread(self._occupancy.leave, clean)

    async def _connect(self) -> None:
        """Wait until it listens, and look at what it has read. An unknown setting is ignored, a wrong one refused late."""
        self._wire = WireV1(await self._address, self._password, _tokens(self.setup))
        version = await self.wire.version()
        if version != self.setup.version or not version.startswith(WireV1.MAJOR):
            raise _unusable(f"it says that it is version {version}, and not {self.setup.version}")
        connected = asyncio.Event()
        self._work.append(asyncio.create_task(self._read_events(connected)))
        agent = (await self.wire.agents()).get(AGENT)
        if agent is None or not _is_locked(agent):
            raise _unusable("it did not take the rules for its tools")
        state = (await self.wire.tool_servers()).get(SERVER, {})
        if state.get("status") != "connected":
            raise _unusable(f"it could not reach its tools ({shorten(str(state.get('error')))})")
        await connected.wait()

    async def _read_stdout(self) -> None:
        """Find the address in what it writes. All else is kept for the log, within limits."""
        async for line in read_lines(self.child.stdout, _LONGEST_LINE):
            found = None if isinstance(line, TooLong) else _LISTENING.search(line)
            if found is not None and not self._address.done():
                self._address.set_result(found.group(1).decode())
            elif line:
                await self._note(_garbage(line))
        if not self._address.done():
            self._address.set_exception(Unreachable("it ended"))
            self._address.exception()  # taken as seen: nobody may wait for it any more

    async def _note(self, line: Garbage) -> None:
        if self.listening:
            await self.frames.put(line)
        elif len(self._noise) < MAX_WAITING:
            self._noise.append(line)

    async def _read_events(self, connected: asyncio.Event) -> None:
        with contextlib.suppress(Refused, Unreachable):
            async for frame in self.wire.events():
                connected.set()
                if self.listening and (isinstance(frame, Garbage) or frame.get("type") not in _NOISE):
                    await self.frames.put(frame)
        self._gone = True
        connected.set()
        if self.listening:
            await self.frames.put(Gone())


def _remove_leftovers(places: Places, tokens: Sequence[str]) -> None:
    """Remove the log, which has addresses in it and cannot be switched off, and the libraries unpacked at each start."""
    own = places.root / "data" / "opencode"
    for folder in (own / "log", places.tmp):
        shutil.rmtree(folder, ignore_errors=True)
    forget(own / "opencode.db", tokens)


def _is_locked(agent: Frame) -> bool:
    """Return whether our rules are the last ones of an agent, but for one about folders that a tool would need."""
    rules = [as_dict(rule) for rule in as_list(agent.get("permission"))]
    told = [(rule.get("permission"), rule.get("action")) for rule in rules]
    told = [rule for rule in told if rule[0] != "external_directory"]
    return told[-len(PERMISSION) :] == list(PERMISSION.items())


@contextlib.asynccontextmanager
async def _failing_as(server: OpencodeServer) -> AsyncGenerator[None]:
    """Turn what can go wrong with a request into the error of a task."""
    try:
        yield
    except TimeoutError:
        raise TaskFailure(
            f"opencode did not answer within {START_S:g} s. Try again, or install it again.",
            code="RUNTIME_PROTOCOL",
            retryable=True,
            runtime=NAME,
        ) from None
    except Unreachable:
        raise await server.crash() from None
    except Refused as error:
        raise TaskFailure(
            f"opencode refused a request: {shorten(str(error))}", code="RUNTIME_PROTOCOL", runtime=NAME
        ) from None


def _unusable(why: str) -> TaskFailure:
    return TaskFailure(
        f"opencode cannot be used: {why}. Install it again.", code="RUNTIME_PROTOCOL", runtime=NAME
    )


def _garbage(line: bytes | TooLong) -> Garbage:
    if isinstance(line, TooLong):
        return Garbage(line.size, line.start.decode("utf-8", "replace"))
    return Garbage(len(line), line[:200].decode("utf-8", "replace"))


def _tokens(setup: Setup) -> list[str]:
    return tokens_in(setup.model_url, setup.tool_url)
