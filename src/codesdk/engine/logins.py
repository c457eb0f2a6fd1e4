"""A runtime and an environment → could a task begin there; and the logins that somebody is just making.

The same questions that a task asks before it starts, asked outside of any session. `Logins` holds a dialog between
two requests: a runtime waits in it for what a person answers later.
"""

import asyncio
import contextlib
import secrets

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome, LoginPrompt
from codesdk.contract.api import LoginState, RuntimeAuth
from codesdk.contract.errors import Busy, CodeSDKError, Conflict, Forbidden, NotFound, TaskFailure
from codesdk.contract.runtime import Runtime, RuntimeEnv
from codesdk.foreign import call, name_of

ASK_S = 30.0
LOGIN_S = 900.0
"""How long a person has for a login: as long as providers let a device code live."""
MAX_LOGINS = 32


async def readiness(runtime: Runtime, env: RuntimeEnv) -> RuntimeAuth:
    """Return whether a task could begin. Must not raise, whatever the runtime does. No model is asked."""
    available = await _available(runtime, env)
    auth = await _auth(runtime, env)
    return RuntimeAuth(name=runtime.name, ready=available.ok and auth.ok, available=available, auth=auth)


def require_logins(runtime: Runtime, env: RuntimeEnv) -> None:
    """Raise `Forbidden` if the operator has not switched a runtime's logins on."""
    if env.login is None:
        raise Forbidden(
            f"Logins of {runtime.name} are switched off here. Use a key (codesdk keys add), or have the operator"
            f" switch them on: CODESDK_LOGINS={runtime.name} where CodeSDK runs, or Permits(logins=…). Read"
            " docs/logins.md first: not every provider allows it.",
            runtime=runtime.name,
        )


async def _available(runtime: Runtime, env: RuntimeEnv) -> Availability:
    try:
        async with asyncio.timeout(ASK_S):
            return await call(runtime.check_available, env)
    except CodeSDKError as error:
        return Availability(ok=False, problem=error.message)
    except Exception as error:  # noqa: BLE001 - it is not ours, and the others are still to be asked
        return Availability(ok=False, problem=f"It does not say whether it is available ({name_of(error)}).")


async def _auth(runtime: Runtime, env: RuntimeEnv) -> AuthStatus:
    try:
        async with asyncio.timeout(ASK_S):
            return await call(runtime.auth_status, env)
    except CodeSDKError as error:
        problem = error.message
    except Exception as error:  # noqa: BLE001 - it is not ours, and the others are still to be asked
        problem = f"It does not say whether it is ready ({name_of(error)})."
    return AuthStatus(ok=False, logged_in=False, auth_model="unknown", problem=problem)


class Logins:
    """The logins that are being made, each its principal's own. Close it when done."""

    def __init__(self) -> None:
        self._open: dict[str, _Login] = {}

    async def begin(self, runtime: Runtime, env: RuntimeEnv, principal: str) -> LoginState:
        """Start a login. Return it with what the person has to do first, or with its outcome."""
        require_logins(runtime, env)
        for login_id, login in list(self._open.items()):
            if login.over:
                del self._open[login_id]
        if len(self._open) >= MAX_LOGINS:
            raise Busy(f"{MAX_LOGINS} logins are already in progress. Try again later.", code="OVERLOADED")
        login = _Login(runtime, env, principal)
        self._open[login.login_id] = login
        return await login.state(ASK_S)

    async def state(self, login_id: str, principal: str, wait_s: float = 0.0) -> LoginState:
        """Return where a login stands, as soon as that changes, at most after `wait_s`."""
        login = self._find(login_id, principal)
        if wait_s:
            await login.change(wait_s)
        return await login.state(0.0)

    async def answer(self, login_id: str, principal: str, text: str) -> LoginState:
        """Give a login what it asks for. Raise `Conflict` if it asks for nothing."""
        login = self._find(login_id, principal)
        login.answer(text)
        await login.change(ASK_S)
        return await login.state(0.0)

    async def cancel(self, login_id: str, principal: str) -> None:
        """Give a login up, and end what it has started."""
        await self._find(login_id, principal).cancel()
        del self._open[login_id]

    async def close(self) -> None:
        """Give up all logins."""
        for login in self._open.values():
            await login.cancel()
        self._open.clear()

    def _find(self, login_id: str, principal: str) -> "_Login":
        login = self._open.get(login_id)
        if login is None or login.principal != principal:
            raise NotFound("There is no such login. It may have ended; start it again.")
        return login


class _Login:
    """One login: a task of the runtime's, and the dialog that it has with a person. Implements `LoginDialog`."""

    def __init__(self, runtime: Runtime, env: RuntimeEnv, principal: str) -> None:
        self.login_id = f"login_{secrets.token_hex(8)}"
        self.principal = principal
        self._runtime = runtime
        self._prompt: LoginPrompt | None = None
        self._asked: asyncio.Future[str] | None = None
        self._changed = asyncio.Event()
        self._running = asyncio.create_task(self._run(env))

    @property
    def over(self) -> bool:
        return self._running.done()

    async def show(self, prompt: LoginPrompt) -> None:
        self._prompt = prompt
        self._changed.set()

    async def ask(self, prompt: LoginPrompt) -> str:
        self._asked = asyncio.get_running_loop().create_future()
        await self.show(prompt)
        try:
            return await self._asked
        finally:
            self._asked = None

    def answer(self, text: str) -> None:
        if self._asked is None or self._asked.done():
            raise Conflict("The login is not waiting for an answer.")
        self._changed.clear()
        self._asked.set_result(text)

    async def change(self, wait_s: float) -> None:
        """Wait until there is something new, at most `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._changed.wait()

    async def state(self, wait_s: float) -> LoginState:
        await self.change(wait_s)
        self._changed.clear()
        if not self.over:
            asks = self._asked is not None and not self._asked.done()
            return LoginState(login_id=self.login_id, prompt=self._prompt, asks=asks)
        self._changed.set()  # it stays over: nobody shall wait for more
        return LoginState(login_id=self.login_id, outcome=self._running.result())

    async def cancel(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running], timeout=ASK_S)

    async def _run(self, env: RuntimeEnv) -> LoginOutcome:
        try:
            return await log_in(self._runtime, env, self)
        except CodeSDKError as error:
            return LoginOutcome(logged_in=False, problem=error.message)
        finally:
            self._changed.set()


async def log_in(runtime: Runtime, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
    """Have a runtime log in, in its own time but not for ever. Raise `CodeSDKError` if it cannot."""
    deadline = asyncio.timeout(LOGIN_S)
    try:
        async with deadline:
            return await call(runtime.ensure_login, env, dialog)
    except CodeSDKError:
        raise
    except Exception as error:
        # By its kind alone: its words may repeat what the person answered.
        why = f"The login of {runtime.name} failed ({type(error).__name__})."
        if deadline.expired():
            why = f"Nobody finished the login of {runtime.name} within {LOGIN_S / 60:g} minutes. Start it again."
        raise TaskFailure(why, code="AUTH_FAILED", runtime=runtime.name) from error
