"""A runtime's entry and the environment of a session → is its program there, and who pays for its model requests.

What all runtimes with a program answer for `check_available`, `auth_status` and `ensure_login`.
"""

from collections.abc import Awaitable

from codesdk.contract.access import KEY_VARIABLES, PROVIDER_OF, AuthStatus, Availability
from codesdk.contract.capabilities import AuthModel
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.program.finding import Program, certify_command


async def availability(entry: RuntimeEntry, finding: Awaitable[Program], env: RuntimeEnv) -> Availability:
    """Return whether a runtime's program, found in any version, may be driven. Must not raise."""
    install = f"codesdk runtimes install {entry.alias or entry.name}"
    try:
        program = await finding
    except TaskFailure as error:
        # The advice in the message is replaced by our own command, which picks the tested version.
        problem = error.message.partition(" Install it with: ")[0]
        return Availability(ok=False, problem=problem, to_do=install)
    refused = program.state == "untested" and not env.allow_untested
    return Availability(
        ok=not refused,
        program=program.path,
        version=program.version,
        state=program.state,
        problem=f"untested: {program.doubt}" if refused else None,
        to_do=f"{certify_command(entry)}, or {install}" if refused else None,
    )


def key_status(entry: RuntimeEntry, env: RuntimeEnv, auth_model: AuthModel) -> AuthStatus:
    """Return whether the gateway would answer a runtime's model requests, and what to do if not."""
    assert entry.wire is not None, "a program asks its model through the gateway"
    access = env.models.get(entry.wire)
    if access is not None:
        return AuthStatus(ok=True, logged_in=False, auth_model=auth_model, account_label=access.label)
    provider, payer = PROVIDER_OF[entry.wire], env.payer
    variable = KEY_VARIABLES[provider]
    command = f"codesdk keys add {provider}"
    if payer.operator:
        to_do = [f"set {variable} where CodeSDK runs", f"store a key: {command}"]
    else:
        command += f" --principal {payer.principal}"
        to_do = [f"store a key: {command}", f"have the operator share {variable}: codesdkd --share-keys"]
    if env.login is not None:
        to_do.insert(1, f"log in: codesdk login {entry.alias or entry.name}")
    whose = "" if payer.operator else f" that {payer.principal} may use"
    return AuthStatus(
        ok=False,
        logged_in=False,
        auth_model=auth_model,
        problem=f"There is no key for {provider}{whose}, and {entry.name} is not logged in.",
        to_do=f"{to_do[0][0].upper()}{'; or '.join(to_do)[1:]}.",
    )


def no_login(entry: RuntimeEntry) -> InvalidRequest:
    """Return the error for a runtime that CodeSDK cannot log in to."""
    return InvalidRequest(
        f"CodeSDK cannot log in to an account of {entry.name}. Use a key instead: codesdk keys",
        runtime=entry.name,
    )
