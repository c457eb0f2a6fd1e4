"""A command and a row as far as it is known → a running agent that an experiment speaks with, frame by frame.

Unlike the adapter it takes whatever it is told, keeps all of it, and answers questions as the experiment wants.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.contract.workspace import Workspace
from codesdk.processes import Child, start_child
from codesdk.runtimes import (
    AgentRow,
    Connection,
    Frame,
    Garbage,
    Gone,
    Places,
    RequestFailed,
    Setup,
    as_dict,
    as_list,
    command_line,
    environment,
    fill,
    known_names,
    mcp_server,
    working_folder,
    write_files,
)
from codesdk.testing.probe.seen import About
from codesdk.testing.probe.world import World

VERSION = 1
INTRODUCTION_S = 30.0
REQUEST_S = 40.0
MAX_GARBAGE = 1_000
MAX_FRAMES = 20_000
PERMISSION = "session/request_permission"
_NOT_FOUND = -32601
Consent = Literal["allow", "reject"]


class Talk:
    """One running agent. `frames` is all that it said since it was last emptied."""

    def __init__(self, world: World, setup: Setup, places: Places, child: Child) -> None:
        self.world = world
        self.setup = setup
        self.places = places
        self.child = child
        self.connection = Connection(child, self._answer, versioned=True)
        self.consent: Consent = "allow"
        self.about = About()
        self.session: Frame = {}
        self._echoed = False

    @property
    def session_id(self) -> str:
        """The agent's id of the session."""
        return str(self.session.get("sessionId"))

    async def introduce(self) -> About:
        """Initialize. Raise `TaskFailure`, with one sentence, if it is no agent of this version of the protocol."""
        nothing = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        client = {"name": "codesdk", "title": "CodeSDK", "version": "1"}
        params = {"protocolVersion": VERSION, "clientCapabilities": nothing, "clientInfo": client}
        try:
            result = await self.request("initialize", params, INTRODUCTION_S)
        except RequestFailed as error:
            if self._echoed:
                raise self.strange("repeats what it is told, so it is not an agent") from None
            raise self.strange(
                f"refused version {VERSION} of the Agent Client Protocol, the one that CodeSDK speaks"
                f" ({error.message[:200]})"
            ) from None
        told = as_dict(result)
        if "protocolVersion" not in told:
            raise self.strange(
                "answers, but says no version of the Agent Client Protocol, so it is not an agent"
            )
        if told["protocolVersion"] != VERSION:
            raise self.strange(
                f"speaks version {told['protocolVersion']} of the Agent Client Protocol, and CodeSDK speaks {VERSION}"
            )
        info = as_dict(told.get("agentInfo"))
        self.about = About(
            name=str(info.get("name") or ""),
            version=str(info.get("version") or ""),
            capabilities=as_dict(told.get("agentCapabilities")),
            logins=tuple(as_dict(login) for login in as_list(told.get("authMethods"))),
        )
        return self.about

    async def greet(self) -> None:
        """Say what the row wants said after the introduction."""
        for method, params in self._filled(self.setup.row.greets).items():
            await self.request(method, params)

    async def begin(self) -> None:
        """Begin a session, as the row says."""
        self.session = as_dict(await self.request("session/new", self.session_params()))
        for method, params in self._filled(self.setup.row.begins).items():
            await self.request(method, {"sessionId": self.session_id, **params})

    async def load(self, session_id: str) -> None:
        """Load a session that an earlier process had."""
        params = {"sessionId": session_id, **self.session_params()}
        self.session = {**as_dict(await self.request("session/load", params)), "sessionId": session_id}

    def session_params(self) -> Frame:
        """Return what a session is begun and loaded with."""
        meta = self._filled(self.setup.row.meta)
        params: Frame = {"cwd": str(working_folder(self.places)), "mcpServers": [mcp_server(self.setup)]}
        return {**params, "_meta": meta} if meta else params

    async def prompt(self, *more: Frame, timeout_s: float = REQUEST_S) -> None:
        """Hand over the words of the experiment, and wait until the turn is over. What happened is in `world.seen`."""
        self._drop_unread()
        content = [*more, {"type": "text", "text": self.world.words}]
        seen = self.world.seen
        try:
            seen.answer = await self.request(
                "session/prompt", {"sessionId": self.session_id, "prompt": content}, timeout_s
            )
        except RequestFailed as error:
            seen.problem = error.message[:300]
        except TaskFailure as error:
            seen.problem = error.message

    async def request(self, method: str, params: Frame, timeout_s: float = REQUEST_S) -> Any:
        """Ask, and return the answer; what is said meanwhile is kept. Raise `RequestFailed`, or `TaskFailure`."""
        garbage = 0
        frames = self.world.seen.frames
        try:
            async with asyncio.timeout(timeout_s):
                await self.connection.ask(method, params)
                while True:
                    message = await self.connection.messages.get()
                    if isinstance(message, Gone):
                        raise await self._died(method)
                    if isinstance(message, Garbage):
                        garbage += 1
                        if garbage > MAX_GARBAGE:
                            raise self.strange("writes without end, and none of it is a message")
                        continue
                    if message.get("method") == method and "params" not in message:
                        break
                    frames.append(message)
                    self._consent(message)
                    if len(frames) > MAX_FRAMES:
                        raise self.strange(f"says more than {MAX_FRAMES:,} things during {method}")
        except TimeoutError:
            raise self.strange(f"did not answer {method} within {timeout_s:g} s") from None
        if "error" in message:
            raise RequestFailed(method, message["error"])
        return message.get("result")

    async def notify(self, method: str, params: Frame) -> None:
        """Tell the agent something."""
        with contextlib.suppress(TaskFailure, TimeoutError):
            await self.connection.notify(method, params)

    async def ends_by_itself(self, seconds: float) -> float | None:
        """Close its input. Return how long it took to end, or None if it did not."""
        began = time.monotonic()
        with contextlib.suppress(OSError, RuntimeError):
            self.child.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.child.wait()
                return time.monotonic() - began
        return None

    def strange(self, what: str) -> TaskFailure:
        """Return the error of an agent that is none, or a bad one."""
        tail = self.child.stderr_tail().strip()
        words = f" It wrote: {' '.join(tail.split())[-300:]}" if tail else ""
        return TaskFailure(f"The program {what}.{words}", code="RUNTIME_PROTOCOL")

    async def _died(self, method: str) -> TaskFailure:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self.child.wait()
        code = self.child.exit_code
        how = "" if code is None else f" with code {code}"
        return self.strange(f"ended{how} before it answered {method}")

    def _drop_unread(self) -> None:
        """Drop what was said since the last turn, so that it is not taken for this one's."""
        messages = self.connection.messages
        while not messages.empty():
            message = messages.get_nowait()
            if isinstance(message, Gone):
                messages.put_nowait(message)
                return
            if isinstance(message, dict):
                self._consent(message)

    def _answer(self, method: str, params: Any) -> Frame | None:
        if method == "initialize":
            self._echoed = True
        if method == PERMISSION:
            return None
        return {"error": {"code": _NOT_FOUND, "message": f"CodeSDK does not answer {method}."}}

    def _consent(self, message: Frame) -> None:
        if message.get("method") != PERMISSION:
            return
        options = [as_dict(option) for option in as_list(as_dict(message.get("params")).get("options"))]
        for kind in (f"{self.consent}_once", f"{self.consent}_always"):
            for option in options:
                if option.get("kind") == kind:
                    chosen = {"outcome": "selected", "optionId": option.get("optionId")}
                    self.connection.respond(message.get("id"), {"result": {"outcome": chosen}})
                    return
        self.connection.respond(message.get("id"), {"result": {"outcome": {"outcome": "cancelled"}}})

    def _filled(self, value: Any) -> Any:
        return fill(value, known_names(self.setup, self.places))


@asynccontextmanager
async def started(
    world: World, row: AgentRow, command: tuple[str, ...], places: Places, extra: Mapping[str, str] = {}
) -> AsyncGenerator[Talk]:
    """Start an agent with a row as far as it is known, and end it with all that it started."""
    setup = Setup(
        command=command,
        row=row,
        model=row.model,
        model_url=world.address("row"),
        tool_url=await world.tool_address(),
        instructions="You are a coding agent.",
    )
    await asyncio.to_thread(write_files, setup, places)
    env = RuntimeEnv(
        cwd="/",
        env={},
        credential_namespace="probe",
        isolation=Isolation(level="ephemeral", mode="subprocess"),
    )
    child = await start_child(
        command_line(setup, places),
        cwd=Workspace(str(working_folder(places))),
        env={**environment(setup, places, env), **extra},
        secrets=sorted(world.tokens),
    )
    talk = Talk(world, setup, places, child)
    try:
        yield talk
    finally:
        await child.stop(0)
        await talk.connection.close()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(1):
                # What nobody reads keeps the pipe open, after its writer is gone, too.
                while await child.stdout.read(1 << 16):
                    pass
