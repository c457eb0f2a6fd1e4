"""A program and an arbiter as a runtime of one session: CodeSDK's policy and its people are the judge.

A request is a native call: the engine is asked whether it may run, the program runs it, and its result is reported.
The program's output passes by and is not recorded, but for its end, which is the text of the task's answer.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from secrets import token_hex
from typing import Any, Literal

from codesdk.channel.arbiter import Arbiter
from codesdk.channel.commands import Decided
from codesdk.channel.diagnostics import Diagnostics
from codesdk.channel.limits import ArbiterLimits
from codesdk.channel.outcome import Outcome
from codesdk.channel.protocol import ToolRequest, ToolResult
from codesdk.channel.runner import Launch, Runner, RunnerSession
from codesdk.channel.subjects import subjects_of
from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import OF_WRAPPED, Capabilities
from codesdk.contract.entry import WRAPPED
from codesdk.contract.errors import CodeSDKError, ErrorInfo, TaskFailure
from codesdk.contract.events import OutputCompleted, RuntimeNotice
from codesdk.contract.messages import Message, Text
from codesdk.contract.options import AnyOptions
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Host,
    RuntimeEnv,
    RuntimeItem,
    RuntimeTask,
    TaskInput,
    ToolAnnouncement,
    ToolEnded,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity

ALLOWED = "allowed"
_ITEMS = 256
_CLOSE_S = 10.0


class WrappedProgram:
    """The one program of one session. Implements `Runtime`, for one task."""

    def __init__(
        self,
        launch: Launch,
        runner: Runner,
        limits: ArbiterLimits,
        *,
        audit: bool = False,
        diagnostics: Callable[[str], Diagnostics] | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`diagnostics` makes the file of a session. `warn` is told what a person should know."""
        self._launch = launch
        self._runner = runner
        self._limits = limits
        self._audit = audit
        self._diagnostics = diagnostics
        self._warn = warn
        self._task: WrappedTask | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """How it ended, or why it was never started."""

    @property
    def name(self) -> str:
        return WRAPPED

    @property
    def options(self) -> type[Any]:
        return AnyOptions

    def capabilities(self) -> Capabilities:
        return OF_WRAPPED

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=True, program=self._launch.argv[0])

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=False, auth_model="none", account_label="no account needed")

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        raise CodeSDKError("A wrapped program has no login of CodeSDK's.", code="INVALID_REQUEST")

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        """Start the program. It runs once: a second task finds it gone."""
        if self._task is not None:
            raise TaskFailure(
                "A wrapped program runs once. Wrap it again for another run.",
                code="RUNTIME_UNAVAILABLE",
                runtime=WRAPPED,
            )
        judge = EngineJudge(host, task.env.cwd)
        arbiter = Arbiter(
            self._runner,
            judge,
            self._limits,
            audit=self._audit,
            run_id=task.session_id,
            diagnostics=self._diagnostics(task.session_id) if self._diagnostics else None,
            warn=self._warn,
        )
        try:
            session = await arbiter.start_session(self._launch)
        except TaskFailure as error:
            self.outcome.set_exception(error)
            raise
        self._task = WrappedTask(arbiter, session, judge, self._launch, self.outcome)
        return self._task

    def interrupt(self) -> None:
        """Pass Ctrl-C on to the program, if it runs."""
        if self._task is not None:
            self._task.arbiter.interrupt()

    def cancel(self, reason: str) -> None:
        """End the program, if it runs."""
        if self._task is not None:
            self._task.arbiter.abort("user_cancel", reason)

    async def close_session(self, session_id: str) -> None:
        """Keep nothing: the task had everything."""


class EngineJudge:
    """The engine as a judge. Implements `Judge`; what it reports waits in `items`."""

    def __init__(self, host: Host, workspace: str) -> None:
        self._host = host
        self._workspace = workspace
        self.items: asyncio.Queue[RuntimeItem] = asyncio.Queue(_ITEMS)
        self._closed = False

    def close(self) -> None:
        """Drop what nobody takes any more, so that nobody waits for room."""
        self._closed = True
        while not self.items.empty():
            self.items.get_nowait()

    async def decide(self, request: ToolRequest) -> Decided:
        ruling = await self._host.may_run(self._announcement(request))
        return Decided(allow=ruling.denied is None, reason=ruling.denied or ALLOWED, rule_id=ruling.rule)

    async def watch(self, request: ToolRequest) -> None:
        await self._report(self._announcement(request))

    async def end(self, request: ToolRequest, result: ToolResult | None, *, watched: bool) -> None:
        await self._report(
            ToolEnded(
                runtime_tool_call_id=request.id,
                result=_words(result),
                is_error=result is None or not result.ok,
                outcome="unknown" if result is None else "known",
                watched=watched,
            )
        )

    async def note(
        self, kind: Literal["warning", "violation", "signal"], words: str, details: dict[str, Any]
    ) -> None:
        await self._report(Draft(RuntimeNotice(kind=kind, message=words, details=details)))

    async def _report(self, item: RuntimeItem) -> None:
        if not self._closed:
            await self.items.put(item)

    def _announcement(self, request: ToolRequest) -> ToolAnnouncement:
        return ToolAnnouncement(
            name=request.tool,
            input=request.args,
            runtime_tool_call_id=request.id,
            origin="native",
            counts_as=request.kind,
            subjects=subjects_of(request.args, self._workspace),
            raw={"action": request.action, "rationale": request.rationale, "ts": request.ts},
        )


class WrappedTask:
    """The program, running. Implements `RuntimeTask`."""

    def __init__(
        self,
        arbiter: Arbiter,
        session: RunnerSession,
        judge: EngineJudge,
        launch: Launch,
        outcome: "asyncio.Future[Outcome]",
    ) -> None:
        self.arbiter = arbiter
        self._session = session
        self._judge = judge
        self._launch = launch
        self._outcome = outcome
        self._serving = asyncio.create_task(self._serve())

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        """Yield what the arbiter reports, then how the program ended."""
        items = self._judge.items
        while not (self._serving.done() and items.empty()):
            coming = asyncio.ensure_future(items.get())
            try:
                await asyncio.wait([coming, self._serving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
            if coming.done() and not coming.cancelled():
                yield coming.result()
        if text := self._session.tails["stdout"].decode("utf-8", "replace"):
            yield Draft(OutputCompleted(message_id=f"out-{token_hex(4)}", content=[Text(text=text)]))
        yield self._ending()

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        """Nothing waits for results: the program has them itself."""

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        """Nothing waits for denials: `may_run` has said it."""

    async def steer(self, messages: Sequence[Message]) -> None:
        """Never called: a wrapped program cannot be steered."""

    async def stop(self, reason: str) -> None:
        """End the program."""
        self.arbiter.abort("user_cancel", reason)

    async def close(self) -> None:
        """End the program, whatever it does. Must not raise."""
        self._judge.close()
        self.arbiter.abort("fatal_error", "its session has ended")
        await asyncio.wait([self._serving], timeout=_CLOSE_S)
        self._serving.cancel()
        await asyncio.wait([self._serving])

    async def _serve(self) -> None:
        try:
            self._settle(await self.arbiter.serve())
        except Exception as error:  # noqa: BLE001 - whoever waits for the outcome is told
            if not self._outcome.done():
                self._outcome.set_exception(error)
        finally:
            if not self._outcome.done():
                self._outcome.cancel()

    def _settle(self, outcome: Outcome) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _ending(self) -> Finished | Failed:
        with contextlib.suppress(asyncio.CancelledError):
            error = self._outcome.exception()
            if error is not None:
                return _failed(f"The arbiter failed: {type(error).__name__}. Report this.", "INTERNAL")
            outcome = self._outcome.result()
            if outcome.abort is not None:
                where = f" See {outcome.diagnostics}." if outcome.diagnostics else ""
                return _failed(f"The program was ended: {outcome.abort.reason}.{where}", "RUNTIME_PROTOCOL")
            if outcome.exit_code == 0:
                return Finished(stop_reason="end_turn")
            return _failed(
                f"The program {self._launch.argv[0]} ended with code {outcome.exit_code}. Look at what it printed.",
                "TOOL_FAILED",
            )
        return _failed("The program was killed with its arbiter.", "RUNTIME_CRASHED")


def _failed(message: str, code: Any) -> Failed:
    return Failed(error=ErrorInfo(code=code, message=message, retryable=False, runtime=WRAPPED))


def _words(result: ToolResult | None) -> Any:
    if result is None:
        return "The program ended before it said how this went."
    return result.output if result.ok or result.error is None else result.error
