"""A runtime's entry and the environment of a session → is its program there, and who pays for its model requests.

What all runtimes with a program answer for `check_available`, `auth_status` and `ensure_login`.
"""

from collections.abc import Awaitable

from codesdk.contract.access import PROVIDER_OF, AuthStatus, Availability, sentence_of, ways_to_a_key
from codesdk.contract.capabilities import InputCapture, LoginTraffic
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import TaskFailure
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.runtime import Draft, RuntimeEnv
from codesdk.runtimes.program.finding import Program, certify_command, install_words
from codesdk.runtimes.program.logins import Login, command_of


async def availability(entry: RuntimeEntry, finding: Awaitable[Program], env: RuntimeEnv) -> Availability:
    """Return whether a runtime's program, found in any version, may be driven. Must not raise."""
    install = install_words(entry)
    try:
        program = await finding
    except TaskFailure as error:
        # The advice in the message is replaced by our own command, which picks the tested version.
        problem = error.message.partition(" Install it with: ")[0]
        return Availability(ok=False, problem=problem, to_do=f"Run: {install}.")
    refused = program.state == "untested" and not env.allow_untested
    return Availability(
        ok=not refused,
        program=program.path,
        version=program.version,
        state=program.state,
        problem=f"untested: {program.doubt}" if refused else None,
        to_do=f"Run: {certify_command(entry)}, or {install}." if refused else None,
    )


def status_of(entry: RuntimeEntry, env: RuntimeEnv, login: Login | None) -> AuthStatus:
    """Return whether a program's model requests would be answered, with a key or with its login, and what to do if not."""
    assert entry.wire is not None, "a program asks its model through the gateway"
    access, found = env.models.get(entry.wire), login is not None
    if access is not None:
        return AuthStatus(ok=True, logged_in=found, auth_model="both", account_label=access.label)
    if login is not None and env.login is not None:
        return AuthStatus(
            ok=True, logged_in=True, auth_model="both", account_label=login.label, traffic=env.login
        )
    provider, payer = PROVIDER_OF[entry.wire], env.payer
    to_do = ways_to_a_key([provider], payer)
    if env.login is not None:
        to_do.insert(1, f"log in: {command_of(entry)}")
    whose = "" if payer.operator else f" that {payer.principal} may use"
    unused = "is not logged in" if login is None else "has a login, but logins are not switched on here"
    return AuthStatus(
        ok=False,
        logged_in=found,
        auth_model="both",
        problem=f"There is no key for {provider}{whose}, and {entry.name} {unused}.",
        to_do=sentence_of(to_do),
    )


def login_notice(label: str, traffic: LoginTraffic) -> Draft:
    """Return what the log says of a task that uses a login: how its requests go, and what is known of them."""
    message = f"The program uses its own account, {label}. {_WAYS[traffic]}"
    details = {"account": label, "traffic": traffic, "input_capture": _CAPTURES[traffic]}
    return Draft(RuntimeNotice(kind="login", message=message, details=details))


_WAYS: dict[LoginTraffic, str] = {
    "through": "Its requests pass the gateway: each is recorded and counted as with a key.",
    "beside": "It talks to its provider without the gateway: no exact input is recorded, and budgets count what it reports.",
}
_CAPTURES: dict[LoginTraffic, InputCapture] = {"through": "exact", "beside": "compiled"}
