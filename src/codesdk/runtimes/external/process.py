"""A command → one running adapter that has introduced itself, and what the engine answers it.

One process for each session. It has the folders of that session and its workspace, what one session's adapter
does cannot disturb another's, and when it dies or breaks the protocol, one session's task fails.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from codesdk.contract.access import LoginDialog
from codesdk.contract.entry import EXTERNAL
from codesdk.contract.errors import CodeSDKError, Conflict, Forbidden, TaskFailure
from codesdk.contract.runtime import AppServerMessage, Host, RuntimeEnv, TaskInput
from codesdk.contract.workspace import Workspace
from codesdk.processes import start_child
from codesdk.runtimes.external.messages import (
    OF_ADAPTER,
    PROTOCOL_VERSION,
    AppServer,
    Data,
    Description,
    Endpoint,
    Initialize,
    ItemOf,
    LastAnswer,
    Learn,
    Listings,
    ModelEndpoint,
    Nothing,
    PromptAnswer,
)
from codesdk.runtimes.external.peer import Noise, Peer, Violation
from codesdk.runtimes.program.environment import LOGIN, Places, make_places, variables
from codesdk.runtimes.program.framing import MAX_LINE_BYTES

if TYPE_CHECKING:
    from codesdk.runtimes.external.task import ExternalTask

INITIALIZE_S = 20.0
MAX_NOISE = 1_000
"""How many lines that are not messages an adapter may print in one task before that ends it."""
STOP_S = 1.0
_CRASH_S = 2.0
_SHOWN = 600


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How an adapter is started: what the runtime is called, the command, and variables beside the usual ones."""

    runtime: str
    argv: Sequence[str]
    folder: str
    """The name of its folders below the state directory. Not the runtime's: a hosted one has folders of its own there."""
    variables: Mapping[str, str] = {}


class Pipes(Protocol):
    """What an adapter is reached by: a child, or a connection to a process that is not ours."""

    @property
    def stdin(self) -> asyncio.StreamWriter: ...

    @property
    def stdout(self) -> asyncio.StreamReader: ...

    @property
    def exit_code(self) -> int | None: ...

    def stderr_tail(self) -> str: ...

    async def wait(self) -> int: ...

    async def stop(self, grace_s: float = ...) -> None: ...


class AdapterProcess:
    """A running adapter. Get it from `start`; call `stop` whatever happens. The handler of its own connection."""

    def __init__(self, launch: Launch, env: RuntimeEnv, places: Places | None, child: Pipes) -> None:
        self.launch = launch
        self.env = env
        self.dialog: LoginDialog | None = None
        """Who logs in, while somebody does."""
        self._places = places
        self._child = child
        self._hosts: dict[str, tuple[Host, TaskInput]] = {}
        self._tasks: dict[str, ExternalTask] = {}
        self._past: set[str] = set()
        self._noise: list[Noise] = []
        self._noises = 0
        self._violation: Violation | None = None
        self._ending: asyncio.Task[None] | None = None
        self._retired = False
        self._is_new = True
        self.described: Description | None = None
        self.peer = Peer(
            child.stdout,
            child.stdin,
            self,
            OF_ADAPTER,
            other=f"The adapter {launch.runtime}",
            strict=True,
        )

    @classmethod
    async def start(cls, launch: Launch, env: RuntimeEnv, cwd: Workspace, owner: str) -> "AdapterProcess":
        """Start an adapter and have it introduce itself. Raise `TaskFailure` if it does not.

        `owner` is the session, or what else its folders are named after.
        """
        places, login = await asyncio.to_thread(_make_folders, launch, env, owner)
        own = {"CODESDK_LOGIN_DIR": str(login), **launch.variables}
        try:
            child = await start_child(launch.argv, cwd=cwd, env=variables(places, env, own))
        except BaseException:
            await asyncio.to_thread(places.remove)
            raise
        process = cls(launch, env, places, child)
        try:
            process.described = await process.introduce()
        except BaseException:
            await process.stop()
            raise
        return process

    @property
    def open(self) -> bool:
        """Whether it still runs, keeps to the protocol and is not being ended."""
        return self.peer.open and not self._retired

    def admit(self, host: Host, task: TaskInput, handle: "ExternalTask | None" = None) -> None:
        """Answer what the adapter asks for a task from now on, and take its items if it has been given it."""
        self._hosts[task.task_id] = host, task
        if handle is not None:
            self._tasks[task.task_id] = handle
            self._noises = len(self._noise)
            if self._is_new and self.launch.runtime.startswith(EXTERNAL) and self.described is not None:
                handle.introduce(self.described)
            self._is_new = False
            for noise in self._noise:
                handle.note(noise)
            self._noise.clear()

    def dismiss(self, task_id: str) -> None:
        """Answer nothing more for a task, and drop what still comes of it."""
        self._hosts.pop(task_id, None)
        self._tasks.pop(task_id, None)
        self._past.add(task_id)

    async def ask(self, method: str, params: msgspec.Struct, *, timeout_s: float | None = None) -> Any:
        """Ask the adapter. If it is gone, raise why, with its last words."""
        try:
            return await self.peer.request(method, params, timeout_s=timeout_s)
        except CodeSDKError:
            if not self.open:
                raise await self.failure() from None
            raise

    async def failure(self) -> TaskFailure:
        """Return the error of an adapter that is gone: what it broke, or how it ended, and the end of its stderr."""
        if self._violation is not None:
            return TaskFailure(
                f"The adapter {self.launch.runtime} {self._violation}. It was ended. Its author has to mend this.",
                code="RUNTIME_PROTOCOL",
                runtime=self.launch.runtime,
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CRASH_S):
                await self._child.wait()
        code, tail = self._child.exit_code, self._child.stderr_tail()[-_SHOWN:]
        how = f" with code {code}" if code is not None else ""
        words = f" It wrote: {tail}" if tail else ""
        return TaskFailure(
            f"The adapter {self.launch.runtime} ended{how}. Start the task again.{words}",
            code="RUNTIME_CRASHED",
            retryable=True,
            runtime=self.launch.runtime,
            details={"exit_code": code, "stderr": tail},
        )

    async def stop(self, grace_s: float = STOP_S) -> None:
        """End it with all it started, and remove what was kept for it alone. Must not raise."""
        self._retired = True  # from now on: whoever stops it may be cancelled before it is gone
        if self._ending is not None:
            await asyncio.wait([self._ending])
        try:
            await self._child.stop(grace_s if self._violation is None else 0)
        finally:
            await self.peer.close()
            if self._places is not None:
                await asyncio.to_thread(self._places.remove)

    async def introduce(self) -> Description:
        """Shake hands. Raise `TaskFailure`, with RUNTIME_UNAVAILABLE unless it broke the protocol."""
        params = Initialize(
            protocol_versions=[PROTOCOL_VERSION],
            runtime=self.launch.runtime,
            engine_version=version("codesdk"),
            max_frame_bytes=MAX_LINE_BYTES,
        )
        try:
            described: Description = await self.ask("initialize", params, timeout_s=INITIALIZE_S)
        except TimeoutError:
            raise self._unavailable(f"did not answer initialize within {INITIALIZE_S:g} s") from None
        except CodeSDKError as error:
            if error.code != "RUNTIME_CRASHED":
                raise
            raise TaskFailure(
                f"{error.message.replace(' Start the task again.', '')} Check the command that starts it, or install it.",
                code="RUNTIME_UNAVAILABLE",
                runtime=self.launch.runtime,
                details=error.details,
            ) from None
        if described.protocol_version != PROTOCOL_VERSION:
            raise self._unavailable(
                f"speaks version {described.protocol_version} of the adapter protocol, and this CodeSDK speaks"
                f" {PROTOCOL_VERSION}"
            )
        return described

    def _unavailable(self, why: str) -> TaskFailure:
        printed = f" It printed: {self._noise[-1].start}" if self._noise else ""
        tail = self._child.stderr_tail()[-_SHOWN:]
        words = f" It wrote: {tail}" if tail else ""
        return TaskFailure(
            f"The adapter {self.launch.runtime} {why}. Install one that does.{printed}{words}",
            code="RUNTIME_UNAVAILABLE",
            runtime=self.launch.runtime,
        )

    # --- what the adapter sends ---

    async def answer(self, method: str, params: Any) -> Any:
        """Do what an adapter asks of the engine."""
        if method in ("show", "ask"):
            return await self._show(method, params)
        if params.task_id not in self._hosts:
            raise Conflict(f"No task {params.task_id[:80]} runs here.")
        host, task = self._hosts[params.task_id]
        match method:
            case "model_endpoint":
                _check_rules(params, task)
                url = await host.model_endpoint(params.sources, params.login, params.rules)
                return Endpoint(url=url)
            case "tool_endpoint":
                return Endpoint(url=await host.tool_endpoint(params.client))
            case "tools_read":
                return Listings(count=await host.tools_read(params.after))
            case "last_answer":
                return LastAnswer(answer=await host.last_answer())
            case "may_run":
                return await host.may_run(params.call)
            case "ask_user":
                return await host.ask_user(params.call, params.question)
            case "put_artifact":
                return await host.put_artifact(params.data, params.content_type, params.name)
            case _:
                assert method == "read_artifact", method
                return Data(data=await host.read_artifact(params.artifact_id))

    def take(self, method: str, params: ItemOf | Learn | AppServer, size: int) -> Awaitable[None] | None:
        """Take an item for its task, secrets that no later item may show, or a message for extensions."""
        if isinstance(params, AppServer):
            if params.task_id in self._hosts:
                _show(self._hosts[params.task_id][0], params.message, size)
            return None
        if isinstance(params, Learn):
            if params.task_id in self._hosts:
                self._hosts[params.task_id][0].learn(params.secrets)
            return None
        handle = self._tasks.get(params.task_id)
        if handle is not None:
            return handle.take(params.item, size)
        if params.task_id not in self._past and params.task_id not in self._hosts:
            raise Violation(f"sent an item of a task that it was not given ({params.task_id[:80]})")
        return None

    def ignore(self, noise: Noise) -> None:
        """Note what the adapter printed by mistake in the log of the task, or of the next one."""
        self._noises += 1
        if self._noises > MAX_NOISE:
            raise Violation(f"printed more than {MAX_NOISE:,} lines that are not messages")
        for handle in self._tasks.values():
            handle.note(noise)
            return
        if len(self._noise) < 10:
            self._noise.append(noise)

    def end(self, why: Violation | None) -> None:
        """End all tasks. An adapter that broke the protocol is killed: nobody knows what it would do next."""
        self._violation = why
        for handle in self._tasks.values():
            handle.wake()
        if why is not None:
            self._ending = asyncio.create_task(self._child.stop(0))

    async def _show(self, method: str, params: Any) -> Any:
        if self.dialog is None:
            raise Conflict("No login is in progress.")
        if method == "ask":
            return PromptAnswer(answer=await self.dialog.ask(params.prompt))
        await self.dialog.show(params.prompt)
        return Nothing()


def _show(host: Host, message: AppServerMessage, size: int) -> None:
    """Show extensions what the program of an adapter said, if one wants it."""
    take = host.app_server(message.method, is_request=message.request_id is not None)
    if take is not None:
        take(msgspec.structs.replace(message, size_bytes=size))


def _check_rules(params: ModelEndpoint, task: TaskInput) -> None:
    """Raise `Forbidden` if an adapter wants tools left in model requests although the session enabled none."""
    if params.rules.natives and not task.native_tools:
        raise Forbidden(
            f"The session enabled no tools of the runtime's own, so {', '.join(params.rules.natives)[:200]} cannot stay"
            " in its model requests."
        )


def _make_folders(launch: Launch, env: RuntimeEnv, owner: str) -> tuple[Places, Path]:
    """Make the folders of a process, and the one for logins, which all processes of a namespace share. Blocking."""
    places = make_places(env, launch.folder, owner)
    if not places.lasting:
        return places, places.folder(LOGIN)
    return places, make_places(env, launch.folder, LOGIN).folder("state")
