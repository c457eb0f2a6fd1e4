"""The adapter's side: serves any `Runtime` object to an engine over two pipes. What `codesdk.adapter` offers to authors.

The engine's requests become calls of the object, and what its tasks yield becomes items, as many as the engine pulls.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from typing import Any, get_origin

import msgspec

from codesdk.contract.access import LoginPrompt
from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.errors import ErrorInfo, InvalidRequest
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.models import NO_SOURCES, InstructionSources, LoginKind, ModelAnswered, Wire
from codesdk.contract.ownership import DEFAULT_RULES, WireRules
from codesdk.contract.runtime import (
    AppServerMessage,
    Draft,
    Failed,
    Finished,
    Ruling,
    Runtime,
    RuntimeItem,
    RuntimeTask,
    TakeMessage,
    ToolAnnouncement,
    ToolReply,
    keeper_of,
)
from codesdk.contract.tools import Question
from codesdk.foreign import Contained, call, name_of
from codesdk.runtimes.external.items import to_wire
from codesdk.runtimes.external.messages import (
    OF_ENGINE,
    PROTOCOL_VERSION,
    AppServer,
    AskUser,
    Description,
    Initialize,
    ItemOf,
    Learn,
    MayRun,
    ModelEndpoint,
    Nothing,
    OfTask,
    Prompt,
    Pull,
    PutArtifact,
    ReadArtifact,
    Recalled,
    StartTask,
    ToolEndpoint,
    ToolsRead,
)
from codesdk.runtimes.external.peer import Noise, Peer, Violation
from codesdk.runtimes.program.framing import Source

_DONE = Nothing()
_ENDINGS = (Finished, Failed)


def serve(runtime: Runtime, *, wire: Wire | None = None, version: str = "0") -> None:
    """Serve a runtime over stdin and stdout until the engine closes them. What else is printed goes to stderr.

    `wire` is the format of the runtime's model requests, if it sends them to `Host.model_endpoint`.
    """
    try:
        import uvloop
    except ImportError:  # it is not there on every system
        asyncio.run(_serve_stdio(runtime, wire, version))
    else:
        uvloop.run(_serve_stdio(runtime, wire, version))


async def serve_streams(
    runtime: Runtime,
    reader: Source,
    writer: asyncio.StreamWriter,
    *,
    wire: Wire | None = None,
    version: str = "0",
) -> None:
    """Serve a runtime over these streams until the engine closes them."""
    server = _Server(runtime, wire, version)
    peer = server.peer = Peer(reader, writer, server, OF_ENGINE, other="The engine", strict=False)
    try:
        await asyncio.wait([peer.reading])
    finally:
        await server.close()
        await peer.close()


class RemoteHost:
    """The engine, as a task of a runtime sees it. Implements `Host`."""

    def __init__(self, peer: Peer, task_id: str, *, shown: bool = False) -> None:
        """`shown`: extensions want messages of an app server. Which of them, the engine decides."""
        self._peer = peer
        self._task_id = task_id
        self._shown = shown

    async def model_endpoint(
        self,
        sources: InstructionSources = NO_SOURCES,
        login: LoginKind | None = None,
        rules: WireRules = DEFAULT_RULES,
    ) -> str:
        params = ModelEndpoint(task_id=self._task_id, sources=sources, login=login, rules=rules)
        return (await self._peer.request("model_endpoint", params)).url

    def learn(self, secrets: Sequence[str]) -> None:
        self._peer.post("learn", Learn(task_id=self._task_id, secrets=list(secrets)))

    async def tool_endpoint(self, client: McpClient = ANY_CLIENT) -> str:
        params = ToolEndpoint(task_id=self._task_id, client=client)
        return (await self._peer.request("tool_endpoint", params)).url

    async def tools_read(self, after: int = -1) -> int:
        return (await self._peer.request("tools_read", ToolsRead(task_id=self._task_id, after=after))).count

    async def last_answer(self) -> ModelAnswered | None:
        return (await self._peer.request("last_answer", OfTask(task_id=self._task_id))).answer

    async def may_run(self, call: ToolAnnouncement) -> Ruling:
        return await self._peer.request("may_run", MayRun(task_id=self._task_id, call=call))

    async def ask_user(self, call: ToolAnnouncement, question: Question) -> ToolReply:
        params = AskUser(task_id=self._task_id, call=call, question=question)
        return await self._peer.request("ask_user", params)

    def app_server(self, method: str | None = None, *, is_request: bool = False) -> TakeMessage | None:
        return self._show if self._shown else None

    def _show(self, message: AppServerMessage) -> None:
        self._peer.post("app_server", AppServer(task_id=self._task_id, message=message))

    async def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        params = PutArtifact(task_id=self._task_id, data=data, content_type=content_type, name=name)
        return await self._peer.request("put_artifact", params)

    async def read_artifact(self, artifact_id: str) -> bytes:
        params = ReadArtifact(task_id=self._task_id, artifact_id=artifact_id)
        return (await self._peer.request("read_artifact", params)).data


class _RemoteDialog:
    """The person who logs in, on the other side. Implements `LoginDialog`."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def show(self, prompt: LoginPrompt) -> None:
        await self._peer.request("show", Prompt(prompt=prompt))

    async def ask(self, prompt: LoginPrompt) -> str:
        return (await self._peer.request("ask", Prompt(prompt=prompt))).answer


class _Running:
    """A task of the runtime, and how many of its items the engine still takes."""

    def __init__(self, task: RuntimeTask, items: int) -> None:
        self.task = task
        self.credit = items
        self.pulled = asyncio.Event()
        self.pump: asyncio.Task[None] | None = None

    async def may_send(self) -> None:
        while self.credit == 0:
            self.pulled.clear()
            await self.pulled.wait()
        self.credit -= 1


class _Server:
    """Calls the runtime for the engine. The handler of its connection."""

    peer: Peer

    def __init__(self, runtime: Runtime, wire: Wire | None, version: str) -> None:
        self._runtime = runtime
        self._wire: Wire | None = wire
        self._version = version
        self._running: dict[str, _Running] = {}
        self._sessions: set[str] = set()

    async def answer(self, method: str, params: Any) -> Any:
        runtime = self._runtime
        match method:
            case "initialize":
                return self._describe(params)
            case "check_available":
                return await runtime.check_available(params.env)
            case "auth_status":
                return await runtime.auth_status(params.env)
            case "ensure_login":
                return await runtime.ensure_login(params.env, _RemoteDialog(self.peer))
            case "recall":
                keeper = keeper_of(runtime)
                if keeper is None:
                    return Recalled()
                host = RemoteHost(self.peer, params.task.task_id)
                return Recalled(known=await keeper.recall(host, params.task, params.tail))
            case "start_task":
                return await self._start(params)
            case "close_session":
                self._sessions.discard(params.session_id)
                await runtime.close_session(params.session_id)
                return _DONE
            case _:
                return await self._tell(method, params)

    def take(self, method: str, params: Pull, size: int) -> Awaitable[None] | None:
        running = self._running.get(params.task_id)
        if running is not None:
            running.credit += params.items
            running.pulled.set()
        return None

    def ignore(self, noise: Noise) -> None:
        """Drop what is no message: the engine may be a newer one."""

    def end(self, why: Violation | None) -> None:
        """The engine is gone: the server ends with its reader."""

    async def close(self) -> None:
        """Release all that still runs. Must not raise."""
        for task_id in [*self._running]:
            await self._close(task_id)
        for session_id in self._sessions:
            await asyncio.wait([asyncio.create_task(call(self._runtime.close_session, session_id))])

    def _describe(self, asked: Initialize) -> Description:
        if PROTOCOL_VERSION not in asked.protocol_versions:
            raise InvalidRequest(
                f"This adapter speaks version {PROTOCOL_VERSION} of the adapter protocol, and the engine speaks"
                f" {', '.join(map(str, asked.protocol_versions))}."
            )
        return Description(
            protocol_version=PROTOCOL_VERSION,
            name=self._runtime.name,
            version=self._version,
            capabilities=self._runtime.capabilities(),
            wire=self._wire,
            keeps_history=keeper_of(self._runtime) is not None,
            options=_options(self._runtime.options),
        )

    async def _start(self, params: StartTask) -> Nothing:
        task_id = params.task.task_id
        self._sessions.add(params.task.session_id)
        host = RemoteHost(self.peer, task_id, shown=params.app_server)
        task = await self._runtime.start_task(host, params.task)
        running = self._running[task_id] = _Running(task, params.items)
        running.pump = asyncio.create_task(self._pump(task_id, running))
        return _DONE

    async def _tell(self, method: str, params: Any) -> Nothing:
        """Tell a task something. One that has ended need not know."""
        running = self._running.get(params.task_id)
        if running is None:
            return _DONE
        match method:
            case "send_tool_result":
                await running.task.send_tool_result(params.call, params.reply)
            case "send_tool_denied":
                await running.task.send_tool_denied(params.call, params.reason)
            case "steer":
                await running.task.steer(params.messages)
            case "stop":
                await running.task.stop(params.reason)
            case _:
                assert method == "close", method
                await self._close(params.task_id)
        return _DONE

    async def _close(self, task_id: str) -> None:
        running = self._running.pop(task_id, None)
        if running is None:
            return
        if running.pump is not None:
            running.pump.cancel()
            await asyncio.wait([running.pump])
        await call(running.task.close)

    async def _pump(self, task_id: str, running: _Running) -> None:
        """Send what a task yields, as the engine pulls it. Whatever happens, the last item says how it ended."""
        why = "its stream ended without saying how the task went"
        try:
            with Contained():
                async with aclosing(running.task.events()) as items:
                    async for item in items:
                        await running.may_send()
                        await self._send(task_id, item)
                        if isinstance(item, _ENDINGS):
                            return
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises is an end of its task
            why = name_of(error)
        await running.may_send()
        await self._send(task_id, _broken(self._runtime.name, why))

    async def _send(self, task_id: str, item: RuntimeItem) -> None:
        try:
            await self.peer.notify("item", ItemOf(task_id=task_id, item=to_wire(item)))
        except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
            if isinstance(item, _ENDINGS):
                item = _broken(self._runtime.name, "its final message was unreadable")
            else:
                problem = f"The runtime yielded something that JSON cannot say ({name_of(error)[:200]})."
                item = Draft(RuntimeNotice(kind="unknown_frame", message=problem, details={}))
            await self.peer.notify("item", ItemOf(task_id=task_id, item=to_wire(item)))


def _broken(runtime: str, why: str) -> Failed:
    message = f"The runtime {runtime} broke off: {why.rstrip('.')}. The task can be tried again."
    return Failed(error=ErrorInfo(code="RUNTIME_CRASHED", message=message, retryable=True, runtime=runtime))


def _options(kind: type[Any]) -> dict[str, str] | None:
    """Return what a session may say to the runtime: names and meanings; None if it takes anything."""
    # Not every type is a class: that of any options is `dict[str, Any]`.
    if get_origin(kind) is not None or not issubclass(kind, msgspec.Struct):
        return None
    return {field.name: _meaning(field.type) for field in msgspec.structs.fields(kind)}


def _meaning(kind: Any) -> str:
    notes = getattr(kind, "__metadata__", ())
    return "".join(note.description or "" for note in notes if isinstance(note, msgspec.Meta))


async def _serve_stdio(runtime: Runtime, wire: Wire | None, version: str) -> None:
    loop = asyncio.get_running_loop()
    # Whatever prints from now on, in this process or in one that it starts, does not get between the messages.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(out, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    await serve_streams(runtime, reader, writer, wire=wire, version=version)
    transport.close()
