"""The runtime `external:NAME`: an executable of the operator's, in any language, behind the runtime protocol.

What it is, its process says when it introduces itself. `capabilities` must be known without starting anything, so a
runtime is asked once, by `introduce`, when CodeSDK is opened; every later process has to say the same.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome, key_status
from codesdk.contract.capabilities import Capabilities, Isolation
from codesdk.contract.errors import CodeSDKError, TaskFailure
from codesdk.contract.messages import Message
from codesdk.contract.options import AnyOptions, RuntimeOptions
from codesdk.contract.runtime import HistoryLost, Host, Runtime, RuntimeEnv, RuntimeTask, TaskInput
from codesdk.contract.workspace import Workspace
from codesdk.runtimes.external.messages import (
    WINDOW,
    Description,
    InEnv,
    OfSession,
    Recall,
    Recalled,
    StartTask,
)
from codesdk.runtimes.external.process import AdapterProcess, Launch
from codesdk.runtimes.external.task import ExternalTask
from codesdk.runtimes.program.environment import LOGIN
from codesdk.runtimes.program.finding import Program

ASK_S = 20.0
INTRODUCED_S = 5.0
"""How long CodeSDK waits for executables when it is opened. A slow one is a runtime as soon as it has spoken."""
CLOSE_S = 2.0
_PROBE = RuntimeEnv(
    cwd="/", env={}, credential_namespace="local", isolation=Isolation(level="ephemeral", mode="subprocess")
)


class ExternalRuntime:
    """An adapter in processes of its own, one for each session."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self._launch = Launch(runtime=name, argv=tuple(argv), folder=name.replace(":", "-"))
        self._described: Description | None = None
        self._problem: CodeSDKError | None = None
        self._sessions: dict[str, AdapterProcess] = {}

    @property
    def name(self) -> str:
        return self._launch.runtime

    @property
    def options(self) -> type[Any]:
        return _options(self._description())

    def capabilities(self) -> Capabilities:
        return _hosted(self._description().capabilities)

    async def introduce(self) -> CodeSDKError | None:
        """Start the adapter for a moment and have it say what it is. Return why it does not. Must not raise."""
        try:
            async with self._process(_PROBE):
                return None
        except CodeSDKError as error:
            self._problem = error
            return error

    def driving(self, program: str) -> "ExternalRuntime":
        """Return the same runtime with another program in place of the command's own, as if it had been replaced."""
        other = ExternalRuntime(self.name, [program, *self._launch.argv[1:]])
        if self._described is not None:
            other._believe(self._described)
        return other

    async def find(self) -> Program:
        """Return the program that is started. Raise if it does not introduce itself."""
        async with self._process(_PROBE) as process:
            assert process.described is not None
            return Program(self._launch.argv[0], process.described.version)

    async def check_available(self, env: RuntimeEnv) -> Availability:
        program = self._launch.argv[0]
        try:
            async with self._process(env) as process:
                assert process.described is not None
                found: Availability = await process.ask("check_available", InEnv(env=env), timeout_s=ASK_S)
                version = found.version or process.described.version
        except TimeoutError:
            problem = f"{self.name} does not say whether it is available."
            return Availability(ok=False, program=program, problem=problem, to_do="Ask its author.")
        except CodeSDKError as error:
            return Availability(
                ok=False, program=program, problem=error.message, to_do="Check the command that starts it."
            )
        return msgspec.structs.replace(found, program=found.program or program, version=version)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        """Return whether a task could begin. An adapter without logins of its own is not asked: it needs a key or none."""
        described = self._description()
        if described.capabilities.login_traffic:
            async with self._process(env) as process:
                return await process.ask("auth_status", InEnv(env=env), timeout_s=ASK_S)
        if described.wire is None:
            label = "no account needed"
            return AuthStatus(ok=True, logged_in=False, auth_model="none", account_label=label)
        return key_status([described.wire], env.models, env.payer)

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        # Not one of a session, which may be ended in the middle of it.
        process = await self._start(env, Workspace("/"), LOGIN)
        process.dialog = dialog
        try:
            return await process.ask("ensure_login", InEnv(env=env))
        finally:
            await process.stop()

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        process = await self._session(task)
        handle = ExternalTask(process, task.task_id)
        process.admit(host, task, handle)
        try:
            wanted = host.app_server() is not None
            await process.ask("start_task", StartTask(task=task, items=WINDOW, app_server=wanted))
        except (CodeSDKError, HistoryLost):
            process.dismiss(task.task_id)
            raise
        except BaseException:  # nobody knows whether it has begun
            process.dismiss(task.task_id)
            await process.stop()
            raise
        return handle

    async def close_session(self, session_id: str) -> None:
        process = self._sessions.pop(session_id, None)
        if process is None:
            return
        try:
            if process.open:
                await process.ask("close_session", OfSession(session_id=session_id), timeout_s=CLOSE_S)
        except (CodeSDKError, TimeoutError):
            pass
        finally:
            await process.stop()

    async def _recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        """Return what the adapter's own copy of the conversation has. Set as `recall` if it keeps one."""
        process = await self._session(task)
        process.admit(host, task)
        try:
            recalled: Recalled = await process.ask("recall", Recall(task=task, tail=list(tail)))
        except TaskFailure:
            if process.open:
                raise
            return None  # the transcript is there, and the task starts the adapter again
        return recalled.known

    def _description(self) -> Description:
        if self._described is None:
            raise self._problem or TaskFailure(
                f"The adapter {self.name} has not said yet what it is. Try again in a moment.",
                code="RUNTIME_UNAVAILABLE",
                retryable=True,
                runtime=self.name,
            )
        return self._described

    async def _session(self, task: TaskInput) -> AdapterProcess:
        """Return the process of a task's session. Start one if there is none."""
        process = self._sessions.get(task.session_id)
        if process is not None and process.open:
            return process
        if process is not None:
            await process.stop()
        process = await self._start(task.env, task.env.workspace, task.session_id)
        self._sessions[task.session_id] = process
        return process

    @asynccontextmanager
    async def _process(self, env: RuntimeEnv) -> AsyncGenerator[AdapterProcess]:
        """Give a process for a question that belongs to no session: one of the same namespace, or one for this question."""
        for process in self._sessions.values():
            same = process.env.credential_namespace == env.credential_namespace
            if process.open and same and process.env.isolation.level == env.isolation.level:
                yield process
                return
        process = await self._start(env, Workspace("/"), LOGIN)
        try:
            yield process
        finally:
            await process.stop()

    async def _start(self, env: RuntimeEnv, cwd: Workspace, owner: str) -> AdapterProcess:
        process = await AdapterProcess.start(self._launch, env, cwd, owner)
        assert process.described is not None
        try:
            self._believe(process.described)
        except CodeSDKError:
            await process.stop()
            raise
        return process

    def _believe(self, described: Description) -> None:
        """Keep what the adapter says of itself, or raise if it said something else before."""
        if self._described is None:
            self._described, self._problem = described, None
            if described.keeps_history:
                self.recall = self._recall
        elif _lasting(described) != _lasting(self._described):
            raise TaskFailure(
                f"The adapter {self.name} describes itself differently than before. Open CodeSDK again if it was"
                " replaced.",
                code="RUNTIME_PROTOCOL",
                runtime=self.name,
            )


class HostedRuntime(ExternalRuntime):
    """A runtime of this package, in processes of its own. The object in this process only says what it is."""

    def __init__(self, described_by: Runtime, argv: Sequence[str], variables: Mapping[str, str]) -> None:
        super().__init__(described_by.name, argv)
        self._launch = Launch(
            runtime=described_by.name,
            argv=tuple(argv),
            folder=f"hosted-{described_by.name}",
            variables=variables,
        )
        self._described_by = described_by
        if hasattr(described_by, "recall"):
            self.recall = self._recall
        if hasattr(described_by, "find"):  # the program that it drives, not the process that hosts it
            self.find = cast("Any", described_by).find

    def driving(self, program: str) -> "HostedRuntime":
        """Return the same runtime hosted by another interpreter."""
        argv = [program, *self._launch.argv[1:]]
        return HostedRuntime(self._described_by, argv, self._launch.variables)

    @property
    def options(self) -> type[Any]:
        return self._described_by.options

    def capabilities(self) -> Capabilities:
        return _hosted(self._described_by.capabilities())

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        async with self._process(env) as process:
            return await process.ask("auth_status", InEnv(env=env), timeout_s=ASK_S)

    async def check_available(self, env: RuntimeEnv) -> Availability:
        found = await super().check_available(env)
        # The interpreter is not what people want to know of.
        return (
            msgspec.structs.replace(found, program=None) if found.program == self._launch.argv[0] else found
        )


def _hosted(capabilities: Capabilities) -> Capabilities:
    """Return capabilities as they are in a process of its own."""
    return msgspec.structs.replace(
        capabilities, supported_isolation_modes=["subprocess"], recommended_isolation_mode="subprocess"
    )


def _lasting(described: Description) -> Description:
    return msgspec.structs.replace(described, version="")


def _options(described: Description) -> type[Any]:
    """Return the type of a session's options: those that the adapter names, with any values."""
    if described.options is None:
        return AnyOptions
    fields = [
        (name, Annotated[Any, msgspec.Meta(description=meaning)], None)
        for name, meaning in described.options.items()
        if name.isidentifier()
    ]
    return msgspec.defstruct(
        "ExternalOptions",
        fields,
        bases=(RuntimeOptions,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


@asynccontextmanager
async def introduced(
    runtimes: Sequence[ExternalRuntime], wait_s: float = INTRODUCED_S
) -> AsyncGenerator[list[CodeSDKError]]:
    """Ask all of them what they are, at the same time. Yield what went wrong by then; slow ones may say it later."""
    asked = [asyncio.create_task(runtime.introduce()) for runtime in runtimes]
    try:
        await asyncio.wait(asked, timeout=wait_s)
        yield [problem for one in asked if one.done() and (problem := one.result()) is not None]
    finally:
        for one in asked:
            one.cancel()
        await asyncio.wait(asked)
