"""One `codex app-server` for one live session: started locked down, initialized, with the session's one thread.

It outlives a task, because starting it takes most of a second. One that was killed is started again, and resumes its
thread from the file in which codex keeps it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.contract.models import STAND_IN
from codesdk.contract.runtime import AppServerMessage, Host, RuntimeEnv
from codesdk.contract.workspace import Workspace
from codesdk.processes import Child, start_child
from codesdk.runtimes.codex import ENTRY, NAME
from codesdk.runtimes.codex.config import forget_tokens, thread_options, write_config
from codesdk.runtimes.codex.login import link_login
from codesdk.runtimes.codex.native import QUESTIONS, USER_INPUT, running
from codesdk.runtimes.codex.rollout import find_rollout
from codesdk.runtimes.program.endings import crash_of, shorten
from codesdk.runtimes.program.environment import Places, tokens_in, variables
from codesdk.runtimes.program.jsonrpc import Connection, Frame, RequestFailed, as_dict
from codesdk.runtimes.program.occupancy import Occupancy, occupy
from codesdk.runtimes.program.signals import brief
from codesdk.tools import SERVER

REQUEST_S = 50.0
STOP_S = 1.0
_NOT_FOUND = -32601
_RENEWAL = "CODEX_REFRESH_TOKEN_URL_OVERRIDE"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is started with. Another setup needs another server."""

    program: str
    cwd: Workspace
    model: str
    model_url: str
    tool_url: str | None
    login: Path | None = None
    """The folder with the login that it uses; None if the gateway has a key."""
    native_tools: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    """What the model is told first: ours or the session's, then the workspace's."""
    effort: str | None = None


class CodexServer:
    """A running program and its thread."""

    def __init__(self, setup: Setup, places: Places, child: Child, host: Host, occupancy: Occupancy) -> None:
        self.setup = setup
        self.places = places
        self.child = child
        self.host = host
        """That of the newest task."""
        self.connection = Connection(child, answer_later if setup.native_tools else answer, tap=self._show)
        self.thread_id: str | None = None
        self._occupancy = occupancy

    @classmethod
    async def start(
        cls,
        setup: Setup,
        places: Places,
        env: RuntimeEnv,
        models: list[dict[str, Any]],
        host: Host,
        secrets: Sequence[str] = (),
    ) -> "CodexServer":
        """Start the program and initialize the connection. `secrets` are the tokens of its login."""
        home = home_of(places)
        login, address = setup.login, setup.model_url

        def write() -> None:
            write_config(home, address, setup.model, models, setup.native_tools, login=login is not None)
            link_login(home, login)

        occupancy = await asyncio.to_thread(occupy, places, write)
        own = {"CODEX_HOME": str(home)}
        own |= {"CODESDK_MODEL_KEY": STAND_IN} if login is None else {_RENEWAL: f"{address}/oauth/token"}
        child = await start_child(
            [setup.program, "app-server", "--listen", "stdio://", "--strict-config"],
            cwd=setup.cwd,
            env=variables(places, env, own),
            secrets=[*_tokens(setup), *secrets],
        )
        server = cls(setup, places, child, host, occupancy)
        try:
            await server._introduce()
        except BaseException:
            await server.stop()
            raise
        return server

    @property
    def alive(self) -> bool:
        """Whether it still takes requests."""
        return self.connection.open and self.child.exit_code is None

    async def resume_thread(self, known: str | None) -> bool:
        """Go on with a thread that codex has written down. Return whether codex did."""
        if known is None or find_rollout(home_of(self.places), known) is None:
            return False
        try:
            params = {"threadId": known, "excludeTurns": True, **self._options()}
            await self._request("thread/resume", params)
        except RequestFailed:
            return False
        self.thread_id = known
        return True

    async def start_thread(self, items: list[dict[str, Any]]) -> None:
        """Start a thread with a history. What the program had before is left behind."""
        nowhere = {} if running(self.setup.native_tools) else {"environments": list[Any]()}
        started = await self._request("thread/start", {**self._options(), **nowhere})
        self.thread_id = str(started["thread"]["id"])
        if items:
            await self._request("thread/inject_items", {"threadId": self.thread_id, "items": items})

    async def start_turn(
        self, given: list[dict[str, Any]], output_schema: dict[str, Any] | None = None
    ) -> str:
        """Start a turn, whose answer must fit a schema if one is given, and return its id."""
        params: dict[str, Any] = {"threadId": self.thread_id, "input": given}
        if self.setup.effort is not None:
            params["effort"] = self.setup.effort
        if output_schema is not None:
            params["outputSchema"] = output_schema
        started = await self._request("turn/start", params)
        return str(started["turn"]["id"])

    async def steer(self, turn_id: str, given: list[dict[str, Any]]) -> None:
        """Add input to a running turn."""
        params = {"threadId": self.thread_id, "expectedTurnId": turn_id, "input": given}
        await self._request("turn/steer", params)

    async def interrupt(self, turn_id: str, timeout_s: float) -> bool:
        """End a running turn. Return whether codex confirmed it; for a turn that has ended it does not answer."""
        params = {"threadId": self.thread_id, "turnId": turn_id}
        try:
            await self.connection.request("turn/interrupt", params, timeout_s=timeout_s)
        except (TimeoutError, RequestFailed, TaskFailure):
            return False
        return True

    async def crash(self) -> TaskFailure:
        """Return the error of a program that ended, with the end of its stderr."""
        return await crash_of(self.child, "codex", NAME, STOP_S, self.connection.hangs)

    async def stop(self) -> None:
        """End the program with all it started, and remove the session's tokens from its files. Must not raise."""
        await self.child.stop(STOP_S)
        await self.connection.close()
        clean = partial(forget_tokens, home_of(self.places), _tokens(self.setup))
        await asyncio.to_thread(self._occupancy.leave, clean)

    def _show(self, frame: Frame, size: int) -> None:
        """Show extensions what codex says by itself, where one wants it."""
        take = self.host.app_server(str(frame["method"]), is_request=_number(frame) is not None)
        if take is not None:
            take(told(frame, size))

    async def _introduce(self) -> None:
        client = {"name": "codesdk", "title": "CodeSDK", "version": "1"}
        params = {"clientInfo": client, "capabilities": {"experimentalApi": True}}
        await self._request("initialize", params)
        await self.connection.notify("initialized")

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        """Ask codex. A failure says which request it was."""
        try:
            return await self.connection.request(method, params, timeout_s=REQUEST_S)
        except TimeoutError:
            raise TaskFailure(
                f"codex did not answer {method} within {REQUEST_S:g} s. Try again, or install it again.",
                code="RUNTIME_PROTOCOL",
                retryable=True,
                runtime=NAME,
            ) from None
        except TaskFailure:
            raise await self.crash() from None
        except RequestFailed as error:
            if method == "thread/resume":
                raise
            raise TaskFailure(
                f"codex refused {method}: {shorten(error.message)}", code="RUNTIME_PROTOCOL", runtime=NAME
            ) from error

    def _options(self) -> dict[str, Any]:
        setup = self.setup
        return thread_options(
            setup.cwd.path, setup.model, setup.tool_url, setup.native_tools, setup.instructions
        )


def home_of(places: Places) -> Path:
    """Return what CODEX_HOME points to. Not below TMPDIR: codex refuses to work there."""
    return places.folder(ENTRY.state_folder)


def answer(method: str, params: Any) -> Frame:
    """Answer a request of codex: owned tools are allowed, because they are decided on when they reach us; all else is declined."""
    given = as_dict(params)
    match method:
        case "mcpServer/elicitation/request":
            approval = as_dict(given.get("_meta")).get("codex_approval_kind") == "mcp_tool_call"
            owned = approval and given.get("serverName") == SERVER
            return {"result": {"action": "accept" if owned else "decline", "content": None, "_meta": None}}
        case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
            return {"result": {"decision": "decline"}}
        case "execCommandApproval" | "applyPatchApproval":
            return {"result": {"decision": "denied"}}
        case "item/permissions/requestApproval":
            return {"result": {"permissions": {}, "scope": "turn"}}
        case "item/tool/requestUserInput":
            return {"result": {"answers": {}}}
        case "item/tool/call":
            text = {"type": "inputText", "text": "There is no such tool."}
            return {"result": {"contentItems": [text], "success": False}}
        case _:
            return {"error": {"code": _NOT_FOUND, "message": f"CodeSDK does not answer {brief(method)}."}}


def told(frame: Frame, size: int) -> AppServerMessage:
    """Return what codex said as it is shown to extensions, with the thread and the turn that it is about."""
    params: Any = frame.get("params")
    given = as_dict(params)
    return AppServerMessage(
        method=str(frame["method"]),
        params=params,
        request_id=_number(frame),
        thread_id=_named(given.get("threadId") or as_dict(given.get("thread")).get("id")),
        turn_id=_named(given.get("turnId") or as_dict(given.get("turn")).get("id")),
        size_bytes=size,
    )


def _number(frame: Frame) -> int | str | None:
    number: Any = frame.get("id")
    return number if isinstance(number, int | str) else None


def _named(found: Any) -> str | None:
    return found if isinstance(found, str) else None


def answer_later(method: str, params: Any) -> Frame | None:
    """Answer a request of codex, except questions about tools of its own, which the running task answers."""
    return None if method in QUESTIONS or method == USER_INPUT else answer(method, params)


def _tokens(setup: Setup) -> list[str]:
    return tokens_in(setup.model_url, setup.tool_url)
