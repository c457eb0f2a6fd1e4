"""One running agent: the process, the connection, and its session of the Agent Client Protocol.

Lives from one task of a CodeSDK session to the next. Another setup needs another process, which loads the session
again where the agent can.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from codesdk.contract.errors import Conflict, InvalidRequest, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.contract.tools import PermissionMode
from codesdk.contract.workspace import Workspace
from codesdk.processes import Child, start_child
from codesdk.runtimes.acp.errors import AUTH_REQUIRED
from codesdk.runtimes.acp.launch import (
    Setup,
    command_line,
    environment,
    forget_files,
    known_names,
    mcp_server,
    working_folder,
    write_files,
)
from codesdk.runtimes.acp.normalize import CANCELLED, PERMISSION, PROMPT
from codesdk.runtimes.acp.row import fill
from codesdk.runtimes.acp.told import Told
from codesdk.runtimes.program.endings import crash_of, shorten
from codesdk.runtimes.program.environment import Places
from codesdk.runtimes.program.jsonrpc import Connection, Frame, Garbage, Gone, RequestFailed, as_dict
from codesdk.runtimes.program.occupancy import Occupancy, occupy
from codesdk.runtimes.program.signals import brief

VERSION = 1
"""The version of the protocol that is spoken. Version 2 is a draft."""
STEERING = "_session/steering"
REQUEST_S = 60.0
LISTED_S = 30.0
STOP_S = 1.0
LAST_WORDS_S = 1.0
_NOT_FOUND = -32601

Message = Frame | Garbage | Gone
Listed = Callable[[], Coroutine[Any, Any, object]]
"""Waits until the agent has read the list of our tools."""


class Agent:
    """A running agent and its session."""

    def __init__(self, name: str, setup: Setup, places: Places, child: Child, occupancy: Occupancy) -> None:
        self.name = name
        self.setup = setup
        self.places = places
        self.child = child
        self.connection = Connection(child, _answer, versioned=True)
        self.session_id: str | None = None
        self.version: str | None = None
        """As the agent itself says it."""
        self._occupancy = occupancy
        self._mode: str | None = None
        self._can: Frame = {}

    @classmethod
    async def start(
        cls, name: str, setup: Setup, places: Places, env: RuntimeEnv, secrets: Sequence[str] = ()
    ) -> "Agent":
        """Start the program and initialize the connection."""
        occupancy = await asyncio.to_thread(occupy, places, partial(write_files, setup, places))
        child = await start_child(
            command_line(setup, places),
            cwd=Workspace(str(working_folder(places))),
            env=environment(setup, places, env),
            secrets=[*setup.tokens, *secrets],
        )
        agent = cls(name, setup, places, child, occupancy)
        try:
            await agent._introduce()
            for method, params in agent._filled(setup.row.greets).items():
                await agent._exchange(method, params)
        except BaseException:
            await agent.stop()
            raise
        return agent

    @property
    def alive(self) -> bool:
        """Whether it still takes requests."""
        return self.connection.open and self.child.exit_code is None

    async def begin_session(self, listed: Listed) -> None:
        """Begin a new session, and wait until the agent has read the list of our tools."""
        result = await self._exchange("session/new", self._session())
        self._take_session(str(as_dict(result).get("sessionId")), as_dict(result))
        for method, params in self._filled(self.setup.row.begins).items():
            await self._exchange(method, {"sessionId": self.session_id, **params})
        await self._wait_for_tools(listed)

    async def load_session(self, known: str, listed: Listed, last: str) -> Told | None:
        """Go on with a session that the agent keeps. Return what it tells of it, or None if it has none.

        `last` is the end of the model's last answer: an agent may still be telling after it has answered.
        """
        params = {"sessionId": known, **self._session()}
        for method, is_offered in (("session/load", self._loads), ("session/resume", self._resumes)):
            if not is_offered:
                continue
            told = Told()
            try:
                result = await self._exchange(method, params, told)
            except RequestFailed:
                continue
            if method == "session/load":
                await self._hear_rest(told, last)
            self._take_session(known, as_dict(result))
            await self._wait_for_tools(listed)
            return told
        return None

    async def choose(self, mode: PermissionMode) -> None:
        """Put the session into the mode and give it the model that a task wants, unless it has them."""
        wanted = self.setup.row.modes.get(mode)
        if wanted is not None and wanted != self._mode:
            await self._exchange("session/set_mode", {"sessionId": self.session_id, "modeId": wanted})
            self._mode = wanted

    async def prompt(self, content: list[dict[str, Any]]) -> None:
        """Hand over a prompt. What was said before is dropped; the answer comes when the turn has ended."""
        self._drop_unread()
        await self.connection.ask(PROMPT, {"sessionId": self.session_id, "prompt": content})

    async def steer(self, content: list[dict[str, Any]]) -> None:
        """Add input to the running turn. Raise `Conflict` if there is none any more."""
        idle = {"steering": {"idleBehavior": "promptRequired"}}
        params = {"sessionId": self.session_id, "prompt": content, "_meta": idle}
        try:
            result = await self.connection.request(STEERING, params, timeout_s=REQUEST_S)
        except (RequestFailed, TimeoutError) as error:
            raise Conflict(f"{self.name} did not take the input ({error}).", runtime=self.name) from None
        if as_dict(result).get("outcome") == "promptRequired":
            raise Conflict("The task has just ended; start another one.", runtime=self.name)

    async def cancel(self) -> None:
        """Ask the agent to end its turn."""
        with contextlib.suppress(TaskFailure, TimeoutError):
            await self.connection.notify("session/cancel", {"sessionId": self.session_id})

    async def crash(self) -> TaskFailure:
        """Return the error of a program that ended, with the end of its stderr."""
        return await crash_of(self.child, self.name, self.name, LAST_WORDS_S, self.connection.hangs)

    async def stop(self, *, force: bool = False) -> None:
        """End the program with all it started, and remove what holds the session's addresses. Must not raise."""
        row = self.setup.row
        if row.exit == "eof" and not force and self.child.exit_code is None:
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                self.child.stdin.close()
                async with asyncio.timeout(row.exit_s):
                    await self.child.wait()
        await self.child.stop(0 if force else STOP_S)
        await self.connection.close()
        clean = partial(forget_files, self.setup, self.places)
        await asyncio.to_thread(self._occupancy.leave, clean)

    # --- inside -----------------------------------------------------------------------------------------

    @property
    def _loads(self) -> bool:
        return self._can.get("loadSession") is True

    @property
    def _resumes(self) -> bool:
        return as_dict(self._can.get("sessionCapabilities")).get("resume") is not None

    async def _introduce(self) -> None:
        nothing = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        client = {"name": "codesdk", "title": "CodeSDK", "version": "1"}
        params = {"protocolVersion": VERSION, "clientCapabilities": nothing, "clientInfo": client}
        try:
            result = await self._exchange("initialize", params)
        except RequestFailed as error:
            raise self._strange(
                f"refused version {VERSION} of the protocol ({shorten(error.message)})"
            ) from None
        told = as_dict(result)
        spoken = told.get("protocolVersion")
        if spoken != VERSION:
            raise self._strange(f"speaks version {spoken} of the protocol, and not {VERSION}")
        self._can = as_dict(told.get("agentCapabilities"))
        version = as_dict(told.get("agentInfo")).get("version")
        self.version = version if isinstance(version, str) else None

    def _session(self) -> Frame:
        """Return what every session is begun and loaded with."""
        meta = self._filled(self.setup.row.meta)
        params: Frame = {"cwd": str(working_folder(self.places)), "mcpServers": [mcp_server(self.setup)]}
        return {**params, "_meta": meta} if meta else params

    def _filled(self, value: Any) -> Any:
        return fill(value, known_names(self.setup, self.places))

    def _take_session(self, session_id: str, result: Frame) -> None:
        self.session_id = session_id
        current = as_dict(result.get("modes")).get("currentModeId")
        self._mode = current if isinstance(current, str) else None

    async def _wait_for_tools(self, listed: Listed) -> None:
        if not self.setup.row.lists_tools:
            return
        reading, gone = asyncio.create_task(listed()), asyncio.create_task(self.child.wait())
        try:
            await asyncio.wait([reading, gone], timeout=LISTED_S, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                return
        finally:
            reading.cancel()
            gone.cancel()
        if not self.alive:
            raise await self.crash()
        raise self._strange(f"did not ask for its tools within {LISTED_S:g} s")

    async def _hear_rest(self, told: Told, last: str) -> None:
        """Hear what an agent still tells of an earlier conversation, up to the end of its last answer."""
        tail = told.answers() if last else ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                while last not in tail:
                    message = await self.connection.messages.get()
                    told.add(message)
                    # Only as much as could hold it: all of it again for each piece would take minutes.
                    tail = tail[-len(last) :] + _said_in(message, "agent_message_chunk")
                    await asyncio.sleep(0)  # or a flood leaves no turn to the deadline

    async def _exchange(self, method: str, params: Frame, told: Told | None = None) -> Any:
        """Ask, and return the answer. What is said until then is only `told`. A failure says which request it was."""
        try:
            async with asyncio.timeout(REQUEST_S):
                try:
                    await self.connection.ask(method, params)
                except TaskFailure:  # it had ended before it was asked
                    raise await self.crash() from None
                while True:
                    message = await self.connection.messages.get()
                    if isinstance(message, Gone):
                        raise await self.crash()
                    if isinstance(message, Garbage):
                        continue
                    if message.get("method") == method and "params" not in message:
                        break
                    if told is not None:
                        told.add(message)
        except TimeoutError:
            raise self._strange(f"did not answer {method} within {REQUEST_S:g} s", retryable=True) from None
        if "error" in message:
            raise self._refused(method, RequestFailed(method, message["error"]))
        return message.get("result")

    def _refused(self, method: str, error: RequestFailed) -> Exception:
        if method in ("initialize", "session/load", "session/resume"):
            return error
        if as_dict(error.error).get("code") == AUTH_REQUIRED:
            return self._locked_out(shorten(error.message))
        if method == "session/set_mode":
            return InvalidRequest(
                f"{self.name} has no such mode: {shorten(error.message)}", runtime=self.name
            )
        return self._strange(f"refused {method}: {shorten(error.message)}")

    def _locked_out(self, words: str) -> TaskFailure:
        account = self.setup.account
        if account is None:
            why = f"{self.name} asks for a login, although the gateway answers its model: {words}"
            return TaskFailure(why, code="AUTH_REQUIRED", runtime=self.name)
        why = f"{self.name} could not use its account ({words.rstrip('.')}). Try again, or log in again: {account.command}"
        return TaskFailure(why, code="AUTH_FAILED", retryable=True, runtime=self.name)

    def _strange(self, what: str, *, retryable: bool = False) -> TaskFailure:
        tail = shorten(self.child.stderr_tail())
        words = f" It wrote: {tail}" if tail else ""
        return TaskFailure(
            f"{self.name} {what}. Is it an agent of the Agent Client Protocol?{words}",
            code="RUNTIME_PROTOCOL",
            retryable=retryable,
            runtime=self.name,
        )

    def _drop_unread(self) -> None:
        """Drop what was said since the last turn. A question in it is answered: nobody chose."""
        messages = self.connection.messages
        kept: list[Message] = []
        while not messages.empty():
            message = messages.get_nowait()
            if isinstance(message, Gone):
                kept.append(message)
            elif isinstance(message, dict) and message.get("method") == PERMISSION:
                self.connection.respond(message.get("id"), CANCELLED)
        for message in kept:
            messages.put_nowait(message)


def _said_in(message: Message, kind: str) -> str:
    """Return the text of an update of a kind, or none."""
    update = as_dict(as_dict(as_dict(message).get("params")).get("update"))
    text = as_dict(update.get("content")).get("text") if update.get("sessionUpdate") == kind else None
    return text if isinstance(text, str) else ""


def _answer(method: str, params: Any) -> Frame | None:
    """Answer a request of the agent: questions about calls later, in their order; all else is not offered."""
    if method == PERMISSION:
        return None
    return {"error": {"code": _NOT_FOUND, "message": f"CodeSDK does not answer {brief(method)}."}}
