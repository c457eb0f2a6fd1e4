"""Whether a runtime can be used, and who pays for its model requests: a key, or an account of the program's own.

A key belongs to a principal or to the operator, and only the gateway has it; a login lies in a credential
namespace, and only the program uses it. Where there is a key, it is used. Nothing here holds either of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from codesdk.contract.capabilities import AuthModel, LoginTraffic
from codesdk.contract.models import ModelAccess, Payer, Wire
from codesdk.contract.tools import Record

ProviderName = Literal["anthropic", "openai", "gemini"]
PROVIDERS: tuple[ProviderName, ...] = get_args(ProviderName)
"""Whose keys can be stored."""
PROVIDER_OF: Mapping[Wire, ProviderName] = {
    "anthropic": "anthropic",
    "responses": "openai",
    "chat": "openai",
    "gemini": "gemini",
}
KEY_VARIABLES: Mapping[ProviderName, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""The environment variables with the operator's keys."""
COMPATIBLE_URL = "OPENAI_COMPATIBLE_BASE_URL"
COMPATIBLE_KEY = "OPENAI_COMPATIBLE_API_KEY"
"""The environment variables with the operator's own service for chat completions, and with its key if it needs one."""


class ProviderKeys(Protocol):
    """The keys of principals: written, used, never shown."""

    def of(self, principal: str) -> Mapping[ProviderName, str]:
        """Return a principal's keys by provider, as they are now."""
        ...

    def secrets(self) -> Sequence[str]:
        """Return the keys of all principals, to be kept out of everything that is stored or shown."""
        ...


VersionState = Literal["tested", "certified", "untested"]


class Availability(Record, frozen=True, kw_only=True):
    """Whether a runtime's program is there and may be driven. Says nothing about accounts."""

    ok: bool
    program: str | None = None
    """The path of the program; None for a runtime that comes with CodeSDK, or if it was not found."""
    version: str | None = None
    state: VersionState | None = None
    """Whether its version is the tested one, was certified by the operator, or neither."""
    problem: str | None = None
    """Why not, as a sentence; None if `ok`."""
    to_do: str | None = None
    """What to do about it, as a sentence."""


class AuthStatus(Record, frozen=True, kw_only=True):
    """Whether a runtime is ready to talk to its model. Never holds a secret."""

    ok: bool
    logged_in: bool
    """Whether the program has a login to an account of its own. A key is none."""
    auth_model: AuthModel
    account_label: str | None = None
    """For people: which key or which account is used."""
    traffic: LoginTraffic | None = None
    """How the requests of the account go, if an account is used; None with a key. `beside`: none of them is seen."""
    problem: str | None = None
    """Why it is not ready, as a sentence; None if `ok`."""
    to_do: str | None = None
    """What to do about it, as a sentence."""
    details: dict[str, Any] | None = None


def answering(wires: Sequence[Wire], models: Mapping[Wire, ModelAccess]) -> Wire | None:
    """Return the first of a runtime's formats in which the gateway would answer it, or None."""
    return next((wire for wire in wires if wire in models), None)


def key_status(wires: Sequence[Wire], models: Mapping[Wire, ModelAccess], payer: Payer) -> AuthStatus:
    """Return whether a runtime without logins of its own could ask its model, in any of its formats; if not, what to do."""
    wire = answering(wires, models)
    if wire is not None:
        return AuthStatus(ok=True, logged_in=False, auth_model="api_key", account_label=models[wire].label)
    whose = "" if payer.operator else f" that {payer.principal} may use"
    providers: list[ProviderName] = list(dict.fromkeys(PROVIDER_OF[wire] for wire in wires))
    return AuthStatus(
        ok=False,
        logged_in=False,
        auth_model="api_key",
        problem=f"There is no key for {' or '.join(providers)}{whose}.",
        to_do=sentence_of(ways_to_a_key(providers, payer)),
    )


def ways_to_a_key(providers: Sequence[ProviderName], payer: Payer) -> list[str]:
    """Return what can be done so that a payer has a key of one of these providers, each a part of a sentence."""
    variables = " or ".join(KEY_VARIABLES[provider] for provider in providers)
    command = f"codesdk keys add {providers[0] if len(providers) == 1 else 'PROVIDER'}"
    if payer.operator:
        return [f"set {variables} where CodeSDK runs", f"store a key: {command}"]
    return [
        f"store a key: {command} --principal {payer.principal}",
        f"have the operator share {variables}: codesdkd --share-keys",
    ]


def sentence_of(ways: Sequence[str]) -> str:
    """Return several things that can be done as one sentence."""
    return f"{ways[0][0].upper()}{'; or '.join(ways)[1:]}."


class LoginPrompt(Record, frozen=True, kw_only=True):
    """What a person has to do in order to log in. Shown to whoever logs in, and to nobody else."""

    message: str
    url: str | None = None
    """The address to open. CodeSDK never opens it."""
    code: str | None = None
    """The one-time code to type in there."""
    expires_at: str | None = None
    """Until when it can be done."""


class LoginOutcome(Record, frozen=True, kw_only=True):
    """How a login ended."""

    logged_in: bool
    account_label: str | None = None
    problem: str | None = None
    """Why nobody is logged in, as a sentence."""


class LoginDialog(Protocol):
    """The person who logs in, as a runtime sees it."""

    async def show(self, prompt: LoginPrompt) -> None:
        """Show a prompt, in place of the one before. Does not wait for the person."""
        ...

    async def ask(self, prompt: LoginPrompt) -> str:
        """Show a prompt and return what the person answers: a secret, such as a code from the provider's page."""
        ...
