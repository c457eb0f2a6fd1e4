"""The runtime `opencode-server`: tasks of a session → what is said in one conversation of the real `opencode serve`.

The program is locked down (`config`), its models come through the gateway and its tools over MCP, so that CodeSDK
decides what it may do. `wire_v1` speaks with it, `normalize` says what its events mean, `task` sees one task through.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome, key_status
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.messages import Message
from codesdk.contract.options import read_options
from codesdk.contract.runtime import HistoryLost, Host, RuntimeEnv, RuntimeTask, TaskInput
from codesdk.runtimes.opencode import ENTRY, NAME, PREFIX, Dialect, OpencodeOptions
from codesdk.runtimes.opencode.config import INSTRUCTIONS, WAYS
from codesdk.runtimes.opencode.copy import in_copy
from codesdk.runtimes.opencode.input import parts_of, retold
from codesdk.runtimes.opencode.server import OpencodeServer, Setup
from codesdk.runtimes.opencode.state import State
from codesdk.runtimes.opencode.task import MAX_RETRIES, OpencodeTask
from codesdk.runtimes.program import PROGRAM_CAPABILITIES
from codesdk.runtimes.program.access import availability
from codesdk.runtimes.program.environment import Places, make_places
from codesdk.runtimes.program.finding import Program, find_program, notices_about
from codesdk.runtimes.program.pinned import OPENCODE
from codesdk.runtimes.program.pinned.versions import UNKNOWN
from codesdk.runtimes.program.unanswered import sent_of
from codesdk.tools import by_wire_name

_FIRST: Dialect = "openai-compatible"
_CAPABILITIES = msgspec.structs.replace(
    PROGRAM_CAPABILITIES, instruction_files=list(ENTRY.instructions.captured)
)


class OpencodeRuntime:
    """Opencode behind the runtime protocol. `program` is a path to use in place of the installed one."""

    def __init__(self, program: str | None = None, *, max_retries: int = MAX_RETRIES) -> None:
        self._given = program
        self._max_retries = max_retries
        self._servers: dict[str, OpencodeServer] = {}
        self._places: dict[str, Places] = {}

    @property
    def name(self) -> str:
        return NAME

    @property
    def options(self) -> type[OpencodeOptions]:
        return OpencodeOptions

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return await availability(ENTRY, self.find(allow_untested=True), env)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        """Return whether a model would answer, in any of the formats that opencode speaks."""
        return key_status(ENTRY.wires, env.models, env.payer)

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        raise InvalidRequest(f"{NAME} has no login of its own here: its models come through the gateway.")

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        """Send the messages to the conversation that there is, or to a new one with the history that the task brings."""
        program = await self.find(task.env.cwd, allow_untested=task.env.allow_untested)
        native = task.history == "native"
        parts = await (parts_of if native else retold)(task.messages, host.read_artifact)
        server = await self._server(host, task, program)
        if not native:
            await server.start_session()
        elif server.session_id is None and not await server.resume_session(task.runtime_session_id):
            raise HistoryLost("opencode does not have the conversation")
        assert server.session_id is not None
        state = State(
            session_id=server.session_id,
            model=server.setup.model,
            wire=WAYS[server.setup.dialect].wire,
            tools=by_wire_name((tool.name for tool in task.tools), PREFIX),
        )
        started = OpencodeTask(server, state, host, notices_about(ENTRY, program), self._max_retries)
        started.say(parts)
        return started

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        """Return what opencode has of the last messages: its server runs, or it has them in its database."""
        program = await self.find(task.env.cwd, allow_untested=task.env.allow_untested)
        live = self._servers.get(task.session_id)
        server = await self._server(host, task, program)
        if server is live and server.session_id == task.runtime_session_id:
            return len(tail)
        kept = await server.wire.messages(task.runtime_session_id or "none")
        if kept is None:
            return None
        return in_copy(kept, tail[0], await sent_of(tail[1:], parts_of, host.read_artifact))

    async def close_session(self, session_id: str) -> None:
        server, places = self._servers.pop(session_id, None), self._places.pop(session_id, None)
        if server is not None:
            await server.stop()
        if places is not None:
            await asyncio.to_thread(places.remove)

    async def find(self, workspace: str | None = None, *, allow_untested: bool = False) -> Program:
        """Return the program that is driven. Raise `TaskFailure` if there is none that may be."""
        return await find_program(ENTRY, self._given, workspace=workspace, allow_untested=allow_untested)

    async def _server(self, host: Host, task: TaskInput, program: Program) -> OpencodeServer:
        """Return the session's server. Start one if there is none, or if the task needs it set up in another way."""
        places, setup = self._placed(task), await self._setup(host, task, program)
        server = self._servers.pop(task.session_id, None)
        if server is not None and (server.setup != setup or not server.alive):
            await server.stop()
            server = None
        if server is None:
            server = await OpencodeServer.start(setup, places, task.env)
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
        options = read_options(OpencodeOptions, task.runtime_config, NAME)
        dialect = choose_dialect(options, task.env)
        sources = ENTRY.sources(str(places.home), str(places.root / "config" / "opencode"))
        return Setup(
            program=tuple(program.argv),
            # That of a program without a package is not known before it runs; it must be the tested one then.
            version=OPENCODE.version if program.version == UNKNOWN else program.version,
            dialect=dialect,
            model=task.model or WAYS[dialect].model,
            model_url=await host.model_endpoint(sources, None, ENTRY.rules()),
            tool_url=await host.tool_endpoint(ENTRY.mcp),
            instructions=(
                options.system_prompt or INSTRUCTIONS,
                *(file.framed for file in task.instructions),
            ),
            max_output_tokens=options.max_output_tokens,
        )


def choose_dialect(options: OpencodeOptions, env: RuntimeEnv) -> Dialect:
    """Return as which kind of provider the gateway is spoken to: the one that is asked for, or the first with a key."""
    usable: list[Dialect] = [dialect for dialect, way in WAYS.items() if way.wire in env.models]
    chosen = options.provider or (usable[0] if usable else _FIRST)
    if chosen not in usable:
        status = key_status([WAYS[chosen].wire], env.models, env.payer)
        raise CodeSDKError(f"{status.problem} {status.to_do}", code="AUTH_REQUIRED", runtime=NAME)
    return chosen
