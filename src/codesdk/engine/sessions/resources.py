"""What a session holds outside the engine: its runtime, the URLs it gave it, its attached MCP servers.

Each is opened when first needed, and all are released within the grace period of a stop. The token in a URL is
a secret of the session from then on, redacted like any other. `RuntimeHost` is what a runtime may use of it.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from codesdk.contract.capabilities import Capabilities, McpTransport
from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.errors import CodeSDKError, InvalidRequest, TaskFailure
from codesdk.contract.events import ArtifactCreated
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.models import NO_SOURCES, InstructionSources, LoginKind, ModelAnswered, Payer
from codesdk.contract.options import RuntimeOptions, read_options
from codesdk.contract.ownership import DEFAULT_RULES, WireRules
from codesdk.contract.ports import Attached, ToolCalls
from codesdk.contract.runtime import Ruling, Runtime, TakeMessage, ToolAnnouncement, ToolReply
from codesdk.contract.tools import Question, ToolSpec
from codesdk.engine.models.limits import (
    Spending,
    Standing,
    find_near,
    find_over,
    is_asked,
    limits_cost,
)
from codesdk.engine.models.requests import SessionTap
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.sessions.signals import Signals
from codesdk.engine.tasks import lifecycle
from codesdk.engine.waiting import Waiters
from codesdk.foreign import Contained, call, name_of
from codesdk.tools import listed_tools

TOKEN_CHARS = 24
"""A part of a URL that has at least this many characters is a token."""

SERVED: tuple[McpTransport, ...] = ("http", "stdio")
"""The MCP transports that serve a session's tools: HTTP, and a program of ours that forwards to it."""

T = TypeVar("T")
_log = logging.getLogger("codesdk.resources")


def tool_transport(runtime: Runtime, config: Mapping[str, Any]) -> McpTransport | None:
    """Return the first MCP transport that is served here, of those that a session's options say its agent has, or else
    its runtime. None if it takes no tools over MCP."""
    capabilities = capabilities_of(runtime)
    if capabilities.tool_execution_model != "external_mcp":
        return None
    taken = _options(runtime, config).mcp_transports or capabilities.mcp_transports
    return next((transport for transport in taken if transport in SERVED), None)


def _options(runtime: Runtime, config: Mapping[str, Any]) -> RuntimeOptions:
    """Return a session's options; those of a runtime without any if they do not fit, which a task then says in words."""
    try:
        options: Any = read_options(options_of(runtime), config, runtime.name)
    except InvalidRequest:
        options = None
    return options if isinstance(options, RuntimeOptions) else RuntimeOptions()


def capabilities_of(runtime: Runtime) -> Capabilities:
    """Return what a runtime can do. Raise `TaskFailure` if it does not say, whatever the cause."""
    return _told(runtime, "what it can do", runtime.capabilities)


def options_of(runtime: Runtime) -> type[Any]:
    """Return the type of a runtime's options. Raise `TaskFailure` if it does not say, whatever the cause."""
    return _told(runtime, "what it can be told", lambda: runtime.options)


def _told(runtime: Runtime, what: str, say: Callable[[], T]) -> T:
    try:
        with Contained():
            return say()
    except CodeSDKError:
        raise
    except Exception as error:
        why = f"The runtime {runtime.name} does not say {what} ({name_of(error)}). Use another one."
        raise TaskFailure(why, code="RUNTIME_CRASHED", runtime=runtime.name) from error


class Resources:
    """Opens and releases what one session holds outside the engine."""

    def __init__(
        self,
        scope: SessionScope,
        find_runtime: Callable[[str], Runtime],
        spending: Spending,
        tool_calls: ToolCalls,
    ) -> None:
        self._scope = scope
        self._find_runtime = find_runtime
        self.spending = spending
        self._tool_calls = _ListedTools(tool_calls)
        self._runtime: Runtime | None = None
        self._capabilities: Capabilities | None = None
        self._tap: SessionTap | None = None
        self._tool_url: str | None = None
        self._model_url: str | None = None
        self._login: LoginKind | None = None
        self._rules = DEFAULT_RULES
        self._opening = asyncio.Lock()
        self._detach: Callable[[], Awaitable[None]] | None = None

    @property
    def connected(self) -> bool:
        """Whether a runtime may be using a URL of this session, even between tasks."""
        return any(held is not None for held in (self._detach, self._model_url, self._tool_url))

    @property
    def serves_runtime(self) -> bool:
        """Whether the runtime was given an address of this session, as a program is and a part of this process is not."""
        return self._model_url is not None or self._tool_url is not None

    @property
    def runtime(self) -> Runtime:
        """The runtime that the session's tasks run on."""
        if self._runtime is None:
            self._runtime = self._find_runtime(self._scope.state.runtime_name)
        return self._runtime

    @property
    def tap(self) -> SessionTap:
        """The session's model requests. Lazy: most sessions in memory never make any."""
        if self._tap is None:
            self._tap = SessionTap(self._scope, self.spending)
        return self._tap

    def capabilities(self) -> Capabilities:
        """Return what the runtime can do. It is asked once, so that it cannot fail later in a task."""
        if self._capabilities is None:
            self._capabilities = capabilities_of(self.runtime)
        return self._capabilities

    def use(self, runtime: Runtime) -> None:
        """Run on another runtime from now on. The caller has already released the previous one."""
        self._runtime, self._capabilities = runtime, None

    def near_budget(self) -> Standing | None:
        """Return a budget that is nearly used up and that nobody was asked to raise yet."""
        state = self._scope.state
        standing = find_near(state, self.spending.standing(state.principal))
        return None if standing is None or is_asked(state, standing.level) else standing

    @property
    def _payer(self) -> Payer:
        return self._scope.permits.payer(self._scope.state.principal)

    def used_up_budget(self) -> Standing | None:
        """Return a budget that is used up, if the runtime's next model request is not the gateway's to refuse.

        It is as long as the runtime does not say more than what the gateway saw of it.
        """
        state = self._scope.state
        if state.task is not None and state.task.seen.requests and state.task.spent == state.task.seen:
            return None
        return find_over(state, self.spending.standing(state.principal))

    async def model_url(
        self,
        sources: InstructionSources,
        login: LoginKind | None = None,
        rules: WireRules = DEFAULT_RULES,
    ) -> str:
        """Return the URL that the runtime uses in place of the provider's; another one with another login or other rules."""
        door, scope = self._scope.ports.models, self._scope
        if door is None:
            raise TaskFailure(
                "This runtime needs the model gateway, and this engine has none. Choose another runtime.",
                code="RUNTIME_UNAVAILABLE",
            )
        if login is not None and scope.permits.logins.get(scope.state.runtime_name) != "through":
            raise TaskFailure(
                f"The logins of {scope.state.runtime_name} do not pass the gateway here. Use a key, or ask the operator.",
                code="FORBIDDEN",
            )
        async with self._opening:
            if self._model_url is not None and (self._login, self._rules) != (login, rules):
                self._model_url = None
                await door.close(scope.state.session_id)
            if self._model_url is None:
                self._login, self._rules = login, rules
                await self.spending.load(scope.state.principal)
                token = secrets.token_urlsafe(24)
                # Learned before anyone gets it, so that no event can hold it.
                scope.learn([token])
                self._model_url = await door.open(
                    scope.state.session_id,
                    token,
                    self.tap,
                    scope.settings.gateway,
                    scope.workspace,
                    sources,
                    self._payer,
                    login,
                    rules,
                )
        return self._model_url

    async def require_countable(self) -> None:
        """Raise `TaskFailure` if a cost is limited: beside the gateway nobody knows what a request costs."""
        scope = self._scope
        await self.spending.load(scope.state.principal)
        if limits_cost(scope.state, self.spending.standing(scope.state.principal)):
            raise TaskFailure(
                "The program uses an account of its own, beside the gateway, so a cost budget cannot be kept."
                " Limit tokens or requests instead.",
                code="BUDGET_EXCEEDED",
                runtime=scope.state.runtime_name,
            )

    async def tool_url(self, client: McpClient) -> str:
        """Return the URL at which the session's tools are offered over MCP."""
        host = self._scope.ports.mcp
        if host is None:
            raise TaskFailure(
                "This runtime gets its tools over MCP, and there is no MCP host here.",
                code="RUNTIME_UNAVAILABLE",
            )
        async with self._opening:
            if self._tool_url is None:
                url = await host.admit(self._scope.state.session_id, self._tool_calls, client)
                self._scope.learn([part for part in url.split("/") if len(part) >= TOKEN_CHARS])
                self._tool_url = url
        return self._tool_url

    async def tools_read(self, after: int) -> int:
        """Return how often the tools at `tool_url` have been listed, once it is more often than `after`."""
        return await self._tool_calls.listings(after)

    async def attach(self, attached: Attached) -> None:
        """Offer these tools from the next task on, replacing earlier ones, and note what was left out."""
        detach, self._detach = self._detach, attached.close
        self._scope.attached = attached.tools
        for words in attached.left_out:
            lifecycle.notice(self._scope.journal, "warning", words, {})
        await _detach(detach)

    def require_attached(self) -> None:
        """Raise `InvalidRequest` if the session uses MCP servers that are not attached."""
        scope = self._scope
        missing = scope.settings.mcp_servers if scope.attached is None else []
        if missing:
            raise InvalidRequest(
                f"The session uses the MCP servers {', '.join(missing)}, and does not know how to reach"
                " them. Open it with mcp_servers."
            )

    async def release(self) -> None:
        """Release what the runtime, the tools and the attached servers keep for this session."""
        try:
            await self.release_runtime()
        finally:
            await self._scope.ports.tools.close_session(self._scope.state.session_id)
            detach, self._detach = self._detach, None
            await _detach(detach)

    async def release_runtime(self) -> None:
        """Have the runtime close its session within the grace period of a stop, and revoke its URLs."""
        try:
            await self._close_runtime()
        finally:
            await self._revoke_urls()

    async def _close_runtime(self) -> None:
        if self._runtime is not None:
            scope = self._scope
            closing = asyncio.create_task(_let_go(self._runtime, scope.state.session_id))
            await asyncio.wait([closing], timeout=scope.settings.stop_grace_s)
            # Not awaited: a runtime that ignores its cancellation must not hold up the session.
            closing.cancel()
            if scope.ports.clean is not None:
                await asyncio.to_thread(scope.ports.clean, scope.state.session_id, scope.redactor)

    async def _revoke_urls(self) -> None:
        ports = self._scope.ports
        if self._tool_url is not None and ports.mcp is not None:
            url, self._tool_url = self._tool_url, None
            await ports.mcp.dismiss(url)
        if self._model_url is not None and ports.models is not None:
            self._model_url = None
            await ports.models.close(self._scope.state.session_id)


class _ListedTools:
    """The session's `ToolCalls`, and who waits until its tools are listed."""

    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls
        self._listings = 0
        self._listed = Waiters()

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        return self._calls.call(session_id, name, arguments, runtime_tool_call_id=runtime_tool_call_id)

    async def listings(self, after: int) -> int:
        while self._listings <= after:
            await self._listed.wait()
        return self._listings

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        self._listings += 1
        self._listed.wake()
        return listed_tools(self._calls.specs(session_id))


async def _let_go(runtime: Runtime, session_id: str) -> None:
    """Close what a runtime keeps of a session. Its errors are dropped: other sessions must be closed, too."""
    with contextlib.suppress(Exception):
        await call(runtime.close_session, session_id)


async def _detach(close: Callable[[], Awaitable[None]] | None) -> None:
    """End attached servers. A failure is logged only: whatever else is held must be released, too."""
    if close is None:
        return
    try:
        await call(close)
    except Exception:  # noqa: BLE001 - whatever it raises
        _log.exception("attached MCP servers could not be ended")


class RuntimeHost:
    """What a runtime may ask for while its task runs. Implements the `Host` port."""

    def __init__(
        self,
        scope: SessionScope,
        resources: Resources,
        may_run: Callable[[ToolAnnouncement], Awaitable[Ruling]],
        ask_user: Callable[[ToolAnnouncement, Question], Awaitable[ToolReply]],
    ) -> None:
        self._scope = scope
        self._resources = resources
        self._may_run = may_run
        self._ask_user = ask_user
        self._signals = Signals(scope)

    async def model_endpoint(
        self,
        sources: InstructionSources = NO_SOURCES,
        login: LoginKind | None = None,
        rules: WireRules = DEFAULT_RULES,
    ) -> str:
        """Return the URL that the runtime uses in place of the provider's."""
        return await self._resources.model_url(sources, login, rules)

    def learn(self, secrets: Sequence[str]) -> None:
        """Redact these from now on. Known ones cost nothing: a login is told again with every task."""
        self._scope.learn_from_runtime(secrets)

    async def tool_endpoint(self, client: McpClient = ANY_CLIENT) -> str:
        """Return the URL at which the session's tools are offered over MCP."""
        return await self._resources.tool_url(client)

    async def tools_read(self, after: int = -1) -> int:
        """Return how often the list of tools has been read, once it is more often than `after`."""
        return await self._resources.tools_read(after)

    async def last_answer(self) -> ModelAnswered | None:
        """Return how the task's last request to its model ended."""
        return self._resources.tap.last

    async def may_run(self, call: ToolAnnouncement) -> Ruling:
        """Return whether the runtime may run a tool of its own."""
        return await self._may_run(call)

    async def ask_user(self, call: ToolAnnouncement, question: Question) -> ToolReply:
        """Return a person's answer to what a tool of the runtime's own asks."""
        return await self._ask_user(call, question)

    def app_server(self, method: str | None = None, *, is_request: bool = False) -> TakeMessage | None:
        """Return what tells extensions of such messages of the runtime's app server, None if none wants them."""
        listeners, runtime = self._scope.ports.listeners, self._scope.state.runtime_name
        if listeners is None or not listeners.wants(method, runtime, is_request=is_request):
            return None
        return partial(self._signals.pass_on, listeners)

    async def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        """Store bytes for the runtime, and record that in the log."""
        ref = await self._scope.put_artifact(data, content_type, name)
        self._scope.journal.write(ArtifactCreated(artifact=ref, reason="put by the runtime"))
        return ref

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of this session."""
        return await self._scope.read_artifact(artifact_id)
