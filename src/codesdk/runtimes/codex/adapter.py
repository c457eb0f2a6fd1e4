"""The runtime `codex-sdk`: tasks of a session → turns of one thread in the real `codex app-server`.

The program is locked down (`config`), its models come through the gateway and its tools over MCP, so that CodeSDK
decides what it may do. `normalize` says what its frames mean.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.messages import Message
from codesdk.contract.options import read_options
from codesdk.contract.runtime import (
    Failed,
    Finished,
    HistoryLost,
    Host,
    Identified,
    RuntimeEnv,
    RuntimeItem,
    RuntimeTask,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import Question, ToolIdentity
from codesdk.runtimes.codex import ENTRY, NAME, CodexOptions
from codesdk.runtimes.codex.config import DEFAULT_MODEL, INSTRUCTIONS, check_effort, list_models
from codesdk.runtimes.codex.errors import is_dead
from codesdk.runtimes.codex.input import history, split, turn_input
from codesdk.runtimes.codex.login import KIND, find_login, log_in
from codesdk.runtimes.codex.native import ASK, NATIVE_TOOLS, QUESTIONS, USER_INPUT, asked
from codesdk.runtimes.codex.normalize import cut_off, normalize
from codesdk.runtimes.codex.rollout import in_rollout
from codesdk.runtimes.codex.server import CodexServer, Setup, home_of
from codesdk.runtimes.codex.state import State
from codesdk.runtimes.program import PROGRAM_CAPABILITIES
from codesdk.runtimes.program.access import availability, login_notice, status_of
from codesdk.runtimes.program.environment import Places, make_places
from codesdk.runtimes.program.finding import Program, find_program, notices_about
from codesdk.runtimes.program.jsonrpc import Garbage, Gone
from codesdk.runtimes.program.logins import Login, folder_of, mark_refused, required, traffic_of
from codesdk.runtimes.program.unanswered import sent_of
from codesdk.tools import by_wire_name

INTERRUPT_S = 2.0

_CAPABILITIES = msgspec.structs.replace(
    PROGRAM_CAPABILITIES,
    supports_artifacts=False,
    output_schema="native",
    auth_model="both",
    login_traffic=list(ENTRY.logins),
    native_tools=NATIVE_TOOLS,
    instruction_files=list(ENTRY.instructions.captured),
)


class CodexRuntime:
    """Codex behind the runtime protocol. `program` is a path to use in place of the bundled one."""

    def __init__(self, program: str | None = None) -> None:
        self._given = program
        self._models: list[dict[str, Any]] | None = None
        self._servers: dict[str, CodexServer] = {}
        self._places: dict[str, Places] = {}

    @property
    def name(self) -> str:
        return NAME

    @property
    def options(self) -> type[CodexOptions]:
        return CodexOptions

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return await availability(ENTRY, self.find(allow_untested=True), env)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return status_of(ENTRY, env, await asyncio.to_thread(find_login, env))

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        program = await self.find(allow_untested=env.allow_untested)
        return await log_in(program.path, env, dialog)

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        """Start a turn: in the thread that there is, or in a new one with the history that the task brings."""
        program = await self.find(task.env.cwd, allow_untested=task.env.allow_untested)
        login = await self._login(host, task.env)
        server = await self._server(host, task, program, login)
        if task.history == "native":
            if server.thread_id is None and not await server.resume_thread(task.runtime_session_id):
                raise HistoryLost("codex did not resume its thread")
            first = await turn_input(task.messages, host.read_artifact)
        else:
            before, new = split(task.messages)
            first = await turn_input(new, host.read_artifact)
            await server.start_thread(history(before))
        turn_id = await server.start_turn(first, task.output_schema)
        tools = by_wire_name(tool.name for tool in task.tools)
        state = State(
            turn_id=turn_id,
            model=server.setup.model,
            tools=tools,
            natives=frozenset(task.native_tools),
            workspace=task.env.cwd,
            login=login is not None,
        )
        notices = [*notices_about(ENTRY, program)]
        if login is not None:
            notices.append(login_notice(login.label, "through"))
        return CodexTask(server, state, host, notices, login)

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        """Return what the session's thread has of the last messages: it runs, or codex can resume it from its file."""
        server = self._servers.get(task.session_id)
        if server is not None and server.thread_id is not None:
            program = await self.find(task.env.cwd, allow_untested=task.env.allow_untested)
            if server.alive and server.setup == await self._setup(host, task, program):
                return len(tail)
        since = await sent_of(tail[1:], turn_input, host.read_artifact)
        home = home_of(self._placed(task))
        return await asyncio.to_thread(in_rollout, home, task.runtime_session_id or "", since)

    async def close_session(self, session_id: str) -> None:
        server, places = self._servers.pop(session_id, None), self._places.pop(session_id, None)
        if server is not None:
            await server.stop()
        if places is not None:
            await asyncio.to_thread(places.remove)

    async def _login(self, host: Host, env: RuntimeEnv) -> Login | None:
        """Return the account that a task uses; None if the gateway has a key. Its tokens are secrets of the session."""
        if traffic_of(ENTRY, env) is None:
            return None
        login = await asyncio.to_thread(find_login, env)
        if login is None:
            raise required(ENTRY, "Codex is not logged in, and there is no key for its provider.")
        host.learn(login.secrets)
        return login

    async def _server(
        self, host: Host, task: TaskInput, program: Program, login: Login | None
    ) -> CodexServer:
        """Return the session's server. Start one if there is none, or if the task needs it set up in another way."""
        places, setup = self._placed(task), await self._setup(host, task, program)
        models = await self._known_models(program)
        check_effort(models, setup.model, setup.effort)
        server = self._servers.pop(task.session_id, None)
        if server is not None and (server.setup != setup or not server.alive):
            await server.stop()
            server = None
        if server is None:
            secrets = () if login is None else login.secrets
            server = await CodexServer.start(setup, places, task.env, models, host, secrets)
        server.host = host
        self._servers[task.session_id] = server
        return server

    def _placed(self, task: TaskInput) -> Places:
        """Return the folders of the task's session."""
        places = self._places.get(task.session_id)
        if places is None:
            places = self._places[task.session_id] = make_places(task.env, NAME, task.session_id)
        return places

    async def _setup(self, host: Host, task: TaskInput, program: Program) -> Setup:
        """Return what a task wants the program started with."""
        places = self._placed(task)
        options = read_options(CodexOptions, task.runtime_config, NAME)
        sources = ENTRY.sources(str(places.home), str(home_of(places)))
        login = None if traffic_of(ENTRY, task.env) is None else folder_of(ENTRY, task.env)
        rules = ENTRY.rules(sorted(set(task.native_tools)))
        return Setup(
            program=program.path,
            cwd=task.env.workspace,
            model=task.model or DEFAULT_MODEL,
            model_url=await host.model_endpoint(sources, None if login is None else KIND, rules),
            tool_url=await host.tool_endpoint(ENTRY.mcp),
            login=login,
            native_tools=tuple(sorted(set(task.native_tools))),
            instructions=(
                options.system_prompt or INSTRUCTIONS,
                *(file.framed for file in task.instructions),
            ),
            effort=options.effort,
        )

    async def find(self, workspace: str | None = None, *, allow_untested: bool = False) -> Program:
        """Return the program that is driven. Raise `TaskFailure` if there is none that may be."""
        return await find_program(ENTRY, self._given, workspace=workspace, allow_untested=allow_untested)

    async def _known_models(self, program: Program) -> list[dict[str, Any]]:
        if self._models is None:
            self._models = await list_models(program.path)
        return self._models


class CodexTask:
    """One turn."""

    def __init__(
        self,
        server: CodexServer,
        state: State,
        host: Host,
        notices: Sequence[RuntimeItem],
        login: Login | None = None,
    ) -> None:
        self._server = server
        self._state = state
        self._host = host
        self._notices = notices
        self._login = login
        self._over = False
        self._asking: set[asyncio.Task[None]] = set()

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        yield Identified(runtime_session_id=self._server.thread_id, model=self._state.model)
        for notice in self._notices:
            yield notice
        while True:
            message = await self._server.connection.messages.get()
            for item in await self._meaning(message):
                self._over = self._over or isinstance(item, Finished | Failed)
                yield item
                if self._over:
                    return
            self._decide(message)
            if self._state.violation is not None:
                await self._break_off()
                yield _violated(self._state.violation)
                return

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        """Do nothing: the result goes back through MCP."""

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        """Do nothing: the reason goes back through MCP."""

    async def steer(self, messages: Sequence[Message]) -> None:
        given = await turn_input(messages, self._host.read_artifact)
        await self._server.steer(self._state.turn_id, given)

    async def stop(self, reason: str) -> None:
        await self._break_off()

    async def close(self) -> None:
        """End the program if a turn or a command still runs. The next task starts it again."""
        for asking in self._asking:
            asking.cancel()
        if not self._over or self._state.own:
            self._over = True
            self._state.own = {}
            await self._server.stop()

    async def _break_off(self) -> None:
        """Interrupt the turn, if it runs: codex never answers for one that has ended. A program that does not answer is ended."""
        if not self._over and not await self._server.interrupt(self._state.turn_id, INTERRUPT_S):
            await self._server.stop()

    def _decide(self, message: dict[str, Any] | Garbage | Gone) -> None:
        """Ask for a decision if codex wants to run a tool of its own. It waits for the answer."""
        if isinstance(message, Garbage | Gone):
            return
        if message.get("method") == USER_INPUT and "id" in message and self._state.natives:
            enabled = ASK in self._state.natives
            self._begin(self._ask(message["id"], asked(message) if enabled else {}))
        if message.get("method") not in QUESTIONS:
            return
        if self._state.natives and "id" in message:
            own = self._state.own.get(str(message.get("params", {}).get("itemId")))
            first = own is not None and own.announced is not None and own.announced.raw is message
            call = own.announced if own is not None and first else None
            self._begin(self._answer(message["id"], call))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        asking = asyncio.create_task(work)
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _ask(self, number: Any, questions: Mapping[str, tuple[ToolAnnouncement, Question]]) -> None:
        """Ask a person what codex asks. One without an answer is told that there is none, in so many words."""
        asked = [self._host.ask_user(call, question) for call, question in questions.values()]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        answers: dict[str, Any] = {}
        for name, reply in zip(questions, replies, strict=True):
            told = reply if isinstance(reply, ToolReply) else ToolReply(result="It failed.", is_error=True)
            answers[name] = {"answers": [f"No answer. {told.result}" if told.is_error else str(told.result)]}
        self._server.connection.respond(number, {"result": {"answers": answers}})

    async def _answer(self, number: Any, call: ToolAnnouncement | None) -> None:
        """Answer codex's question. An unknown question, and any failure, is a no."""
        reason: str | None = "There is no such call."
        try:
            reason = reason if call is None else (await self._host.may_run(call)).denied
        except Exception:  # noqa: BLE001 - codex waits for an answer
            reason = "Nobody decided about this call."
        finally:
            decision = "accept" if reason is None else "decline"
            self._server.connection.respond(number, {"result": {"decision": decision}})

    async def _meaning(self, message: dict[str, Any] | Garbage | Gone) -> list[RuntimeItem]:
        if isinstance(message, Gone):
            error = await self._server.crash()
            return [*cut_off(self._state), Failed(error=error.info())]
        if isinstance(message, Garbage):
            return [*self._state.signals.garbage(message.size, message.start)]
        items = normalize(self._state, message)
        if self._login is not None and any(
            isinstance(item, Failed) and is_dead(item.error) for item in items
        ):
            await asyncio.to_thread(mark_refused, self._login)
        return items


def bundled() -> Program | None:
    """Return the program that the package brings along. Their versions are the same."""
    try:
        from codex_cli_bin import bundled_codex_path  # pyright: ignore[reportMissingTypeStubs]

        return Program(str(bundled_codex_path()), version("openai-codex-cli-bin"))
    except (ImportError, PackageNotFoundError, FileNotFoundError):
        return None


def _violated(what: str) -> Failed:
    message = f"codex used something of its own that is switched off ({what}), so the task was ended."
    return Failed(error=ErrorInfo(code="FORBIDDEN", message=message, retryable=False, runtime=NAME))
