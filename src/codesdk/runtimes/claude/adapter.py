"""The runtime claude-agent-sdk: tasks of a session → turns of one claude, which stays between them.

`live` starts the process, `process` speaks with it, `normalize` says what its frames mean, `input` what it is told.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import CodeSDKError, Conflict, ErrorInfo
from codesdk.contract.messages import Message
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
from codesdk.runtimes.claude import ENTRY, NAME, ClaudeOptions
from codesdk.runtimes.claude.input import content_of, retold
from codesdk.runtimes.claude.live import Live, begin, in_own_copy, launch_of
from codesdk.runtimes.claude.login import Renewals, find_login, log_in
from codesdk.runtimes.claude.native import NATIVE_TOOLS, question
from codesdk.runtimes.claude.normalize import ClaudeState, Frame, normalize
from codesdk.runtimes.program import PROGRAM_CAPABILITIES
from codesdk.runtimes.program.access import availability, login_notice, status_of
from codesdk.runtimes.program.finding import Program, find_program, notices_about
from codesdk.runtimes.program.logins import Login, traffic_of
from codesdk.runtimes.program.retelling import Content
from codesdk.runtimes.program.unanswered import sent_of
from codesdk.tools import PREFIX, by_wire_name

INTERRUPT_S = 2.0
QUEUED_S = 5.0
MAX_RETRIES = 6
_CAPABILITIES = msgspec.structs.replace(
    PROGRAM_CAPABILITIES,
    auth_model="both",
    login_traffic=list(ENTRY.logins),
    native_tools=NATIVE_TOOLS,
    instruction_files=list(ENTRY.instructions.captured),
)


class ClaudeRuntime:
    """Claude behind the runtime protocol. `program` is a path to use in place of the bundled one."""

    def __init__(self, program: str | None = None, *, max_retries: int = MAX_RETRIES) -> None:
        self._program = program
        self._max_retries = max_retries
        self._live: dict[str, Live] = {}
        self._renewals = Renewals()

    @property
    def name(self) -> str:
        return NAME

    @property
    def options(self) -> type[ClaudeOptions]:
        return ClaudeOptions

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def find(self, workspace: str | None = None, *, allow_untested: bool = False) -> Program:
        """Return the program that is driven. Raise `TaskFailure` if there is none that may be."""
        return await find_program(ENTRY, self._program, workspace=workspace, allow_untested=allow_untested)

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return await availability(ENTRY, self.find(allow_untested=True), env)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return status_of(ENTRY, env, await asyncio.to_thread(find_login, env))

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        program = await self.find(allow_untested=env.allow_untested)
        return await log_in(program.path, env, dialog)

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        """Hand the messages to the session's process, or to a new one: with claude's own copy, or with ours retold."""
        login = await self._login(host, task.env)
        launch = launch_of(task)
        live = self._live.get(task.session_id) if task.history == "native" else None
        if live is not None and live.fits(launch):
            content = await content_of(task.messages, host.read_artifact)
            live.process.forget_unread()
        else:
            telling = content_of if task.history == "native" else retold
            content = await telling(task.messages, host.read_artifact)
            await self.close_session(task.session_id)
            program = await self.find(task.env.cwd, allow_untested=task.env.allow_untested)
            live = self._live[task.session_id] = await begin(host, task, launch, program, self._max_retries)
        tools = by_wire_name((spec.name for spec in task.tools), PREFIX)
        state = ClaudeState(tools, task.native_tools, task.env.cwd, login=login is not None)
        notices = [] if login is None else [login_notice(login.label, "beside")]
        started = ClaudeTask(live, state, host, lambda: self._forget(task.session_id, live), notices)
        await started.say(content)
        return started

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        """Return what claude has of the last messages: its process runs, or its file has them."""
        live = self._live.get(task.session_id)
        if live is not None and live.fits(launch_of(task)):
            return None if live.owes else len(tail)
        await self.close_session(task.session_id)  # it writes its file now
        if live is not None and live.owes:
            return None
        since = await sent_of(tail[1:], content_of, host.read_artifact)
        return await asyncio.to_thread(in_own_copy, task, tail[0], since)

    async def close_session(self, session_id: str) -> None:
        """End the session's process, giving it time to write down its conversation."""
        live = self._live.pop(session_id, None)
        if live is not None:
            await live.process.close(force=False)
            live.folders.remove()

    async def _login(self, host: Host, env: RuntimeEnv) -> Login | None:
        """Return the account that a task uses; None if the gateway has a key. Its tokens are secrets of the session."""
        if traffic_of(ENTRY, env) is None:
            return None
        program = await self.find(env.cwd, allow_untested=env.allow_untested)
        login = await self._renewals.renewed(program.path, env)
        host.learn(login.secrets)
        return login

    def _forget(self, session_id: str, live: Live) -> None:
        """Drop a process that was killed."""
        if self._live.get(session_id) is live:
            del self._live[session_id]
        live.folders.remove()


class ClaudeTask:
    """One task: from the first words handed over until claude waits for more."""

    def __init__(
        self,
        live: Live,
        state: ClaudeState,
        host: Host,
        forget: Callable[[], None],
        notices: Sequence[RuntimeItem] = (),
    ) -> None:
        self._live = live
        self._state = state
        self._host = host
        self._forget = forget
        self._notices = notices
        self._added: dict[str, Sequence[Message]] = {}
        self._stopping = False
        self._idle = False
        self._over = asyncio.Event()
        live.process.decide = self._decide

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        process = self._live.process
        for notice in notices_about(ENTRY, self._live.program):
            yield notice
        try:
            for item in self._notices:
                yield item
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
        """Hand over what a user says. Claude reports by its id what became of it."""
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
            "client_composed": True,  # else claude reads files that are mentioned, and runs commands
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
        await self.say(content, messages)

    async def stop(self, reason: str) -> None:
        """Interrupt the turn; kill claude if it does not react."""
        self._stopping = True
        with contextlib.suppress(TimeoutError, CodeSDKError):
            await self._withdraw()
            await self._live.process.interrupt(INTERRUPT_S)
            async with asyncio.timeout(INTERRUPT_S):
                await self._over.wait()
        if not self._over.is_set():
            await self._live.process.close(force=True)

    async def close(self) -> None:
        """Keep the process if it waits for more, else kill it: the next task could not tell its frames from these."""
        if not self._idle:
            self._idle = True
            self._forget()
            await self._live.process.close(force=True)

    async def _decide(self, request: Frame) -> str | None:
        """Ask whether a tool of claude's own may run."""
        return (await self._host.may_run(question(request, self._state.workspace))).denied

    async def _withdraw(self) -> None:
        """Take back input that claude has not taken up; else it would begin another turn with it."""
        for number in self._state.waiting & self._added.keys():
            if await self._live.process.withdraw(number, INTERRUPT_S):
                self._state.waiting.discard(number)
                self._live.owes = True

    async def _ended(self) -> Finished | Failed:
        if self._stopping:
            return Finished(stop_reason="stopped")
        hangs = self._live.process.hangs
        if hangs is not None:
            message = f"claude {hangs}, so it was ended. Start the task again."
            return Failed(
                error=ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=True, runtime=NAME)
            )
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
