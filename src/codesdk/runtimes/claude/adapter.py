"""The runtime claude-agent-sdk: drives the claude program that the package of that name brings along.

A live session has one process, which stays between its tasks. `claude_process` speaks with it, `claude_normalize`
says what its frames mean, `claude_options` how it is started, `claude_input` what it is told.
"""

import asyncio
import contextlib
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from codesdk.contract.capabilities import AuthStatus, Capabilities
from codesdk.contract.errors import CodeSDKError, Conflict, ErrorInfo, TaskFailure
from codesdk.contract.messages import Message, text_of
from codesdk.contract.models import STAND_IN
from codesdk.contract.runtime import (
    Failed,
    Finished,
    Host,
    RuntimeEnv,
    RuntimeItem,
    RuntimeTask,
    TaskInput,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity
from codesdk.runtimes.claude.auth import ask_auth
from codesdk.runtimes.claude.copy import has_copy
from codesdk.runtimes.claude.errors import NAME
from codesdk.runtimes.claude.input import Content, content_of, new_for_file, new_for_process, retold
from codesdk.runtimes.claude.native import NATIVE_TOOLS, question
from codesdk.runtimes.claude.normalize import PREFIX, ClaudeState, Frame, normalize
from codesdk.runtimes.claude.options import (
    Launch,
    command,
    find_claude,
    own_variables,
    read_wishes,
    tool_token,
)
from codesdk.runtimes.claude.process import ClaudeProcess, start_claude
from codesdk.runtimes.program.environment import Places, make_places, variables
from codesdk.runtimes.program.instructions import framed
from codesdk.runtimes.program.versions import Program
from codesdk.tools import wire_name

START_S = 50.0
INTERRUPT_S = 2.0
QUEUED_S = 5.0
MAX_RETRIES = 6
NOWHERE = "http://127.0.0.1:9/-/-"
_LOGIN = "login"
"""Where a namespace's login is, in place of a session's id."""
CREDENTIALS = ".credentials.json"
_CAPABILITIES = Capabilities(
    supports_streaming=True,
    supports_tool_calls=True,
    supports_parallel_tool_calls=True,
    supports_stop=True,
    supports_artifacts=True,
    supports_session_create=True,
    supports_session_resume=True,
    supports_usage_reporting=True,
    supports_non_interactive=True,
    supports_steer=True,
    supports_fork=True,
    supports_reasoning=True,
    supports_images=True,
    input_capture="exact",
    auth_model="both",
    tool_execution_model="external_mcp",
    permission_model="codesdk",
    state_model="local_disk",
    resume_model="native",
    tool_replay_safety="requires_reapproval",
    mcp_support="client_only",
    mcp_transports=["http"],
    cancellation_model="guaranteed",
    supported_isolation_modes=["subprocess"],
    recommended_isolation_mode="subprocess",
    native_tools=NATIVE_TOOLS,
    instruction_files=["CLAUDE.md"],
)


class Folders(msgspec.Struct, frozen=True):
    """Where a process has its state, and its socket: the address of one must be short, and no other session's."""

    places: Places
    sockets: str

    def remove(self) -> None:
        """Delete what is not to stay. Must not raise."""
        self.places.remove()
        shutil.rmtree(self.sockets, ignore_errors=True)


class Live:
    """A session's process, and what it was started with and told."""

    def __init__(self, process: ClaudeProcess, launch: Launch, folders: Folders) -> None:
        self.process = process
        self.folders = folders
        self.told: list[Message] = []
        self.owed: list[Message] = []
        """What a stop took back: it is told again with the next task."""
        self.model = launch.model
        """The model that claude settled on."""
        self._launch = launch

    def fits(self, launch: Launch) -> bool:
        """Tell whether it would be started the same way again."""
        same = msgspec.structs.replace(launch, model=None) == msgspec.structs.replace(
            self._launch, model=None
        )
        return self.process.alive and same and launch.model in (self._launch.model, self.model)


class ClaudeRuntime:
    """Claude behind the runtime protocol. `program` is a path to use in place of the bundled one."""

    def __init__(self, program: str | None = None, *, max_retries: int = MAX_RETRIES) -> None:
        self._program = program
        self._max_retries = max_retries
        self._live: dict[str, Live] = {}

    @property
    def name(self) -> str:
        return NAME

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def find(self) -> Program:
        """Return the program that is driven. Raise `TaskFailure` if there is none, or not the tested version."""
        return await find_claude(self._program)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        """Ask claude itself. A program that is not there is said in the details."""
        try:
            program = await self.find()
        except TaskFailure as error:
            return AuthStatus(
                ok=False, logged_in=False, auth_model="both", details={"problem": error.message}
            )
        places = make_places(env, NAME, _LOGIN)
        try:
            own = own_variables(places.folder("claude"), NOWHERE, NOWHERE, max_retries=0, key=None)
            return await ask_auth(program.path, str(places.root), variables(places, env, own))
        finally:
            places.remove()

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        """Hand the new messages to the session's process, or to a new one."""
        messages = [message for message in task.messages if message.role != "system"]
        launch = _launch(task)
        live = self._live.get(task.session_id)
        fresh = new_for_process(live.told, messages) if live is not None and live.fits(launch) else None
        if live is None or fresh is None:
            await self.close_session(task.session_id)
            live, content = await self._begin(host, task, launch, messages)
            self._live[task.session_id] = live
        else:
            live.process.forget_unread()
            content = await content_of([*live.owed, *fresh], host.read_artifact)
            live.owed = []
        live.told = [message for message in messages if message.role == "user"]
        tools = {PREFIX + wire_name(spec.name): spec.name for spec in task.tools}
        state = ClaudeState(tools, task.native_tools, task.env.cwd)
        started = ClaudeTask(live, state, host, lambda: self._forget(task.session_id, live))
        await started.say(content)
        return started

    async def close_session(self, session_id: str) -> None:
        """End the session's process in good order."""
        live = self._live.pop(session_id, None)
        if live is not None:
            await live.process.close(force=False)
            live.folders.remove()

    def _forget(self, session_id: str, live: Live) -> None:
        """Let go of a process that was killed."""
        if self._live.get(session_id) is live:
            del self._live[session_id]
        live.folders.remove()

    async def _begin(
        self, host: Host, task: TaskInput, launch: Launch, messages: Sequence[Message]
    ) -> tuple[Live, Content]:
        """Start a process that goes on with claude's own copy of the conversation, or with ours retold."""
        program = await self.find()
        places = make_places(task.env, NAME, task.session_id)
        folders = Folders(places, tempfile.mkdtemp(prefix="codesdk-"))
        try:
            start = await self._starter(host, task, launch, folders, program.path)
            known, fresh = task.runtime_session_id, new_for_file(messages)
            config = _config_dir(task.env, places)
            if (
                known is not None
                and fresh is not None
                and await asyncio.to_thread(has_copy, config, known, messages)
            ):
                content = await content_of(fresh, host.read_artifact)
                with contextlib.suppress(TaskFailure):  # a damaged copy
                    return Live(await start(f"--resume={known}"), launch, folders), content
            content = await retold(messages, host.read_artifact)
            return Live(await start(f"--session-id={uuid.uuid4()}"), launch, folders), content
        except BaseException:
            folders.remove()
            raise

    async def _starter(
        self, host: Host, task: TaskInput, launch: Launch, folders: Folders, program: str
    ) -> Callable[[str], Awaitable[ClaudeProcess]]:
        """Return what starts a process for a conversation."""
        places = folders.places
        config = _config_dir(task.env, places)
        model_url = await host.model_endpoint({"home": str(places.home), "claude": str(config)})
        tool_url = await host.tool_endpoint()
        prompt = places.folder("prompt") / "system.txt"
        prompt.write_text(launch.system_prompt)
        key = None if (config / CREDENTIALS).exists() else STAND_IN
        own = own_variables(config, model_url, tool_url, max_retries=self._max_retries, key=key)
        env = variables(places, task.env, own | {"XDG_RUNTIME_DIR": folders.sockets})
        secrets = [tool_token(tool_url), model_url.rstrip("/").rpartition("/")[2]]

        async def start(conversation: str) -> ClaudeProcess:
            argv = command(program, launch, tool_url, prompt, conversation)
            return await start_claude(
                argv,
                task.env,
                env=env,
                secrets=secrets,
                timeout_s=START_S,
                natives=launch.native_tools,
            )

        return start


class ClaudeTask:
    """One task: from the words that are handed over to the moment claude waits for more."""

    def __init__(self, live: Live, state: ClaudeState, host: Host, forget: Callable[[], None]) -> None:
        self._live = live
        self._state = state
        self._host = host
        self._forget = forget
        self._added: dict[str, Sequence[Message]] = {}
        self._stopping = False
        self._idle = False
        self._over = asyncio.Event()
        live.process.decide = self._decide

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        process = self._live.process
        try:
            while (frame := await process.next_frame()) is not None:
                for item in normalize(self._state, frame):
                    self._idle = isinstance(item, Finished | Failed) and frame["type"] == "system"
                    yield item
                    if isinstance(item, Finished | Failed):
                        return
            yield await self._ended()
        finally:
            self._live.model = self._state.known[1] or self._live.model
            self._live.process.decide = None
            self._over.set()

    async def say(self, content: Content, added: Sequence[Message] = ()) -> None:
        """Hand over what a user says. The id is how claude tells what became of it."""
        number = str(uuid.uuid4())
        self._state.waiting.add(number)
        if added:
            self._added[number] = added
        frame = {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "session_id": "",
            "uuid": number,
            "client_composed": True,  # taken as it is: no mentions of files, no commands
        }
        process = self._live.process
        await (process.hand_over(frame, QUEUED_S) if added else process.say(frame))

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        """Do nothing: results go back over MCP."""

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        """Do nothing: denials go back over MCP."""

    async def steer(self, messages: Sequence[Message]) -> None:
        """Add input: claude takes it up with the next tool result, or as a turn of its own after this one."""
        content = await content_of(messages, self._host.read_artifact)
        if self._over.is_set():  # nobody would hear the answer
            raise Conflict("The task has just ended; start another one.", runtime=NAME)
        self._live.told += messages
        await self.say(content, messages)

    async def stop(self, reason: str) -> None:
        """Interrupt the turn; kill claude if it does not heed that."""
        self._stopping = True
        with contextlib.suppress(TimeoutError, CodeSDKError):
            await self._withdraw()
            await self._live.process.interrupt(INTERRUPT_S)
            async with asyncio.timeout(INTERRUPT_S):
                await self._over.wait()
        if not self._over.is_set():
            await self._live.process.close(force=True)

    async def close(self) -> None:
        """Keep the process if it waits for more, else kill it."""
        if not self._idle:
            self._idle = True
            self._forget()
            await self._live.process.close(force=True)

    async def _decide(self, request: Frame) -> str | None:
        """Ask whether a tool of claude's own may run."""
        return await self._host.may_run(question(request, self._state.workspace))

    async def _withdraw(self) -> None:
        """Take back what was added and not taken up, so that the turn that is stopped is the last."""
        for number in self._state.waiting & self._added.keys():
            if await self._live.process.withdraw(number, INTERRUPT_S):
                self._state.waiting.discard(number)
                self._live.owed += self._added[number]

    async def _ended(self) -> Finished | Failed:
        if self._stopping:
            return Finished(stop_reason="stopped")
        code, said = await self._live.process.last_words()
        message = f"claude ended in the middle of the task (exit code {code})."
        error = ErrorInfo(
            code="RUNTIME_CRASHED",
            message=f"{message} Start the task again.",
            retryable=True,
            runtime=NAME,
            details={"stderr": said} if said else None,
        )
        return Failed(error=error)


def _launch(task: TaskInput) -> Launch:
    wishes = read_wishes(task.runtime_config)
    texts = [text_of(message.content) for message in task.messages if message.role == "system"]
    return Launch(
        model=task.model,
        system_prompt="\n\n".join(filter(None, [wishes.system_prompt, *texts, *framed(task.instructions)])),
        effort=wishes.effort,
        permission_mode=task.permission_mode,
        native_tools=tuple(sorted(set(task.native_tools))),
    )


def _config_dir(env: RuntimeEnv, places: Places) -> Path:
    """Return claude's own folder. Each session has one, with the namespace's login in it if there is one."""
    config = places.folder("claude")
    if places.lasting:
        login = make_places(env, NAME, _LOGIN).folder("claude") / CREDENTIALS
        if login.exists() and not (config / CREDENTIALS).exists():
            (config / CREDENTIALS).symlink_to(login)
    return config
