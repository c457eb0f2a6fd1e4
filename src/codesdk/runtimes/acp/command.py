"""The runtime `acp`: agents that are in no row, each started by the command that its session brings, with a row of its own.

A command is code that runs as the operator, so a daemon takes one only if the operator allows it. Everything else
is what `adapter` does for the agents that ship.
"""

from collections.abc import Sequence
from typing import Any

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import Message
from codesdk.contract.options import read_options
from codesdk.contract.runtime import Host, RuntimeEnv, RuntimeTask, TaskInput
from codesdk.runtimes.acp import ENTRY, NAME, CommandOptions, entry_of_row
from codesdk.runtimes.acp.adapter import AcpRuntime, capabilities_of
from codesdk.runtimes.acp.row import AgentRow, Known

_ANY = AgentRow(wire="chat", model="")


class CommandRuntime:
    """Any agent behind the runtime protocol: one adapter for each session."""

    def __init__(self) -> None:
        self._sessions: dict[str, AcpRuntime] = {}

    @property
    def name(self) -> str:
        return NAME

    @property
    def options(self) -> type[CommandOptions]:
        return CommandOptions

    def capabilities(self) -> Capabilities:
        """Return what an agent can do of which nothing is known: what it cannot is found when it is tried."""
        return capabilities_of(ENTRY, _ANY)

    async def check_available(self, env: RuntimeEnv) -> Availability:
        """Return that it may be used: which program that is, only a session says."""
        return Availability(ok=True)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        """Return whether the gateway would answer anybody. Which format an agent speaks, only a session says."""
        if env.models:
            label = next(iter(env.models.values())).label
            return AuthStatus(ok=True, logged_in=False, auth_model="api_key", account_label=label)
        return AuthStatus(
            ok=False,
            logged_in=False,
            auth_model="api_key",
            problem="There is no key for any provider.",
            to_do="Set a key where CodeSDK runs, or store one: codesdk keys add PROVIDER.",
        )

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        raise InvalidRequest(f"{NAME} has no login that CodeSDK could make.", runtime=NAME)

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        return await (await self._adapter(task)).start_task(host, task)

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        return await (await self._adapter(task)).recall(host, task, tail)

    async def close_session(self, session_id: str) -> None:
        adapter = self._sessions.pop(session_id, None)
        if adapter is not None:
            await adapter.close_session(session_id)

    async def _adapter(self, task: TaskInput) -> AcpRuntime:
        """Return the adapter of a session. Another command or row needs another one."""
        options: Any = read_options(CommandOptions, task.runtime_config, NAME)
        adapter = self._sessions.get(task.session_id)
        if adapter is not None and adapter.given != (options.row, options.command):
            await self.close_session(task.session_id)
            adapter = None
        if adapter is None:
            entry = entry_of_row(Known(row=options.row))
            adapter = AcpRuntime(entry, options.row, command=options.command)
            self._sessions[task.session_id] = adapter
        return adapter
