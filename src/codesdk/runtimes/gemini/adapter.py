"""The runtime `gemini-cli-core`: the adapter of the Agent Client Protocol, driving gemini by its row, or by that of its login."""

import asyncio
from collections.abc import Sequence

from codesdk.contract.access import AuthStatus, LoginDialog, LoginOutcome
from codesdk.contract.runtime import Host, RuntimeEnv, TaskInput
from codesdk.runtimes.acp.adapter import AcpRuntime, Way
from codesdk.runtimes.gemini import ENTRY, ROW
from codesdk.runtimes.gemini.login import Checks, account_of, find_login, log_in, login_row, require_login
from codesdk.runtimes.program.access import status_of
from codesdk.runtimes.program.finding import Program
from codesdk.runtimes.program.logins import traffic_of


class GeminiRuntime(AcpRuntime):
    """Gemini behind the runtime protocol, with a key of the gateway's or beside it with a login of its own."""

    def __init__(self, program: str | None = None) -> None:
        super().__init__(ENTRY, ROW, program)
        self._checks = Checks()

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return status_of(ENTRY, env, await asyncio.to_thread(find_login, env))

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        program = await self.find(allow_untested=env.allow_untested)
        return await log_in(program.argv, env, dialog)

    async def way_of(self, host: Host, task: TaskInput) -> Way:
        """Return how its model requests go. The tokens of a login are secrets of the session."""
        if traffic_of(ENTRY, task.env) is None:
            return await super().way_of(host, task)
        login = await asyncio.to_thread(require_login, task.env)
        host.learn(login.secrets)
        return Way(row=login_row(ROW), account=account_of(login))

    async def admit(self, host: Host, task: TaskInput, program: Program) -> Sequence[str]:
        """Have its login checked, and renewed if it has expired, before it is started with it."""
        if traffic_of(ENTRY, task.env) is None:
            return ()
        login = await self._checks.renewed(program, task.env)
        host.learn(login.secrets)
        return login.secrets


def make_runtime(program: str | None = None) -> GeminiRuntime:
    """Return the runtime. `program` is a path to use in place of the installed one."""
    return GeminiRuntime(program)
