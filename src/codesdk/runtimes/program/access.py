"""A runtime's entry and the environment of a session → is its program there, and who pays for its model requests.

What all runtimes with a program answer for `check_available`, `auth_status` and `ensure_login`.
"""

from collections.abc import Awaitable

from codesdk.contract.access import KEY_VARIABLES, PROVIDER_OF, AuthStatus, Availability
from codesdk.contract.capabilities import AuthModel
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.program.finding import Program


async def availability(entry: RuntimeEntry, finding: Awaitable[Program]) -> Availability:
    """Return whether a runtime's program is found. Must not raise."""
    try:
        program = await finding
    except TaskFailure as error:
        # The advice in the message is replaced by our own command, which picks the tested version.
        problem = error.message.partition(" Install it with: ")[0]
        to_do = f"codesdk runtimes install {entry.alias or entry.name}"
        return Availability(ok=False, problem=problem, to_do=to_do)
    return Availability(ok=True, program=program.path, version=program.version)


def key_status(entry: RuntimeEntry, env: RuntimeEnv, auth_model: AuthModel) -> AuthStatus:
    """Return whether the gateway would answer a runtime's model requests, and what to do if not."""
    assert entry.wire is not None, "a program asks its model through the gateway"
    access = env.models.get(entry.wire)
    if access is not None:
        return AuthStatus(ok=True, logged_in=False, auth_model=auth_model, account_label=access.label)
    provider = PROVIDER_OF[entry.wire]
    to_do = f"Set {KEY_VARIABLES[provider]} where CodeSDK runs, or store a key: codesdk keys add {provider}"
    if env.login is not None:
        to_do += f"; or log in: codesdk login {entry.alias or entry.name}"
    return AuthStatus(
        ok=False,
        logged_in=False,
        auth_model=auth_model,
        problem=f"There is no key for {provider}, and {entry.name} is not logged in.",
        to_do=f"{to_do}.",
    )


def no_login(entry: RuntimeEntry) -> InvalidRequest:
    """Return the error for a runtime that CodeSDK cannot log in to."""
    return InvalidRequest(
        f"CodeSDK cannot log in to an account of {entry.name}. Use a key instead: codesdk keys",
        runtime=entry.name,
    )
