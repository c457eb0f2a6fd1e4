"""Operations about who pays for models: is a runtime ready, provider keys of principals, logins of runtimes."""

from typing import Annotated

import msgspec

from codesdk.contract.access import ProviderName
from codesdk.contract.api import Body, KeyInfo, KeyPage, LoginAnswer, LoginState, NewKey, RuntimeAuth
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import NotFound
from codesdk.daemon.operations.operation import Call, NoQuery, Operation, get
from codesdk.runtimes import entries

MAX_WAIT_S = 30.0


class OfPrincipal(NoQuery, frozen=True, forbid_unknown_fields=True):
    """Whose keys are meant: the caller's own unless another principal is named, which needs the scope admin."""

    principal: Annotated[
        str | None,
        msgspec.Meta(description="Whose; the caller's own without it. Another's need the scope admin."),
    ] = None


class Waiting(NoQuery, frozen=True, forbid_unknown_fields=True):
    """How long to wait for news."""

    wait_s: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=MAX_WAIT_S, description="How many seconds to wait for a change, if there is none yet."
        ),
    ] = 0.0


class NewLogin(Body, frozen=True, kw_only=True):
    """In which credential namespace to log in: the caller's own unless another one is named."""

    credential_namespace: str | None = None


async def runtime_auth(call: Call) -> RuntimeAuth:
    """Return whether a task on a runtime could begin: whether its program is there, and a key or a login.

    The same as a task finds out before it starts. No model is asked.
    """
    return await call.sdk.engine.runtime_auth(_enabled(call), call.caller.principal)


async def begin_login(call: Call) -> LoginState:
    """Log in to a runtime's own account, in the credential namespace.

    Answers with what the person has to do: an address to open, a code to type in, or a question. Refused until the
    operator has switched the runtime's logins on.
    """
    wanted: NewLogin = call.body
    name, principal, engine = _enabled(call), call.caller.principal, call.sdk.engine
    return await engine.keys.once(
        principal,
        call.operation.name,
        call.key,
        [name, wanted.credential_namespace],
        lambda _: engine.begin_login(name, principal, wanted.credential_namespace),
        passing=True,
    )


async def read_login(call: Call) -> LoginState:
    """Return the state of a login.

    Answers as soon as that changes, at the latest after `wait_s`.
    """
    return await call.sdk.engine.logins.state(call.path["login_id"], call.caller.principal, call.query.wait_s)


async def answer_login(call: Call) -> LoginState:
    """Answer what a login asks for, such as a code from the provider's page."""
    given: LoginAnswer = call.body
    login_id, principal, engine = call.path["login_id"], call.caller.principal, call.sdk.engine
    return await engine.keys.once(
        principal,
        call.operation.name,
        call.key,
        [login_id],  # not the answer: it is a secret
        lambda _: engine.logins.answer(login_id, principal, given.text),
        passing=True,
    )


async def cancel_login(call: Call) -> None:
    """Cancel a login."""
    await call.sdk.engine.logins.cancel(call.path["login_id"], call.caller.principal)


async def list_keys(call: Call) -> KeyPage:
    """List the stored provider keys, without the keys."""
    return KeyPage(keys=call.sdk.keys.stored(_whose(call, call.query.principal)))


async def add_key(call: Call) -> KeyInfo:
    """Store a provider key: the caller's own or, with the scope admin, another principal's.

    It pays for that principal's sessions from the next request on. No operation returns it.
    """
    given: NewKey = call.body
    principal = _whose(call, given.principal)

    async def add(_: object) -> KeyInfo:
        stored = call.sdk.keys.add(principal, given.provider, given.key)
        call.sdk.engine.learn_keys()
        return stored

    return await call.sdk.engine.keys.once(
        call.caller.principal,
        call.operation.name,
        call.key,
        [given.provider, principal],  # not the key: it is a secret
        add,
        passing=True,
    )


async def remove_key(call: Call) -> None:
    """Remove a stored provider key."""
    provider: ProviderName = call.path["provider"]  # pyright: ignore[reportAssignmentType] - checked there
    call.sdk.keys.remove(_whose(call, call.query.principal), provider)


def _whose(call: Call, named: str | None) -> str:
    own = call.caller.principal
    if named in (None, own):
        return own
    call.demand("admin", "The keys of another principal")
    return named


def _enabled(call: Call) -> str:
    """Return the full name of the runtime in the path, if sessions may use it."""
    asked = call.path["runtime"]
    name = next((entry.name for entry in enabled(call) if asked in (entry.name, entry.alias)), None)
    if name is None:
        raise NotFound(f"There is no runtime {asked} here.")
    return name


def enabled(call: Call) -> list[RuntimeEntry]:
    """Return the runtimes that sessions may use."""
    known = entries() | {name: RuntimeEntry(name=name, adapter="") for name in call.sdk.external}
    return [entry for name, entry in known.items() if name in (call.settings.permits.runtimes or known)]


OPERATIONS = (
    get("/v1/runtimes/{runtime}/auth", runtime_auth, group="runtimes"),
    Operation(
        name="beginLogin",
        method="POST",
        path="/v1/runtimes/{runtime}/login",
        scope="run",
        run=begin_login,
        body=NewLogin,
        answer=LoginState,
        group="runtimes",
    ),
    get("/v1/logins/{login_id}", read_login, scope="run", query=Waiting, group="runtimes"),
    Operation(
        name="answerLogin",
        method="POST",
        path="/v1/logins/{login_id}/answer",
        scope="run",
        run=answer_login,
        body=LoginAnswer,
        answer=LoginState,
        group="runtimes",
    ),
    Operation(
        name="cancelLogin",
        method="DELETE",
        path="/v1/logins/{login_id}",
        scope="run",
        run=cancel_login,
        status=204,
        group="runtimes",
    ),
    get("/v1/keys", list_keys, scope="run", query=OfPrincipal, group="keys"),
    Operation(
        name="addKey",
        method="POST",
        path="/v1/keys",
        scope="run",
        run=add_key,
        body=NewKey,
        answer=KeyInfo,
        status=201,
        group="keys",
    ),
    Operation(
        name="removeKey",
        method="DELETE",
        path="/v1/keys/{provider}",
        scope="run",
        run=remove_key,
        query=OfPrincipal,
        status=204,
        group="keys",
    ),
)
