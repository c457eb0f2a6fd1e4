"""Model requests as they pass the gateway: what the engine is told about them, and what it answers.

The gateway calls `ModelTap`, which the engine implements, one for each session; the engine calls
`ModelEndpoints`, which the gateway implements, to have a session's runtime pointed at it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from codesdk.contract.events import Purpose
from codesdk.contract.ownership import DEFAULT_RULES, WireRules, WireTap
from codesdk.contract.settings import GatewayMode
from codesdk.contract.tools import ManifestEntry, Record
from codesdk.contract.workspace import Workspace

STAND_IN = "held-by-the-gateway"
"""Given to a runtime as its key: the gateway has the real one. A request with only this has no login."""
Wire = Literal["anthropic", "responses", "chat", "gemini"]
"""The formats of model requests that the gateway reads."""
LoginKind = Literal["chatgpt"]
"""The kinds of logins that a program may bring along to the gateway."""
RequestStatus = Literal["completed", "failed", "abandoned"]
"""How a request ended: answered, failed or cut off, or given up by the runtime."""


class Payer(Record, frozen=True, kw_only=True):
    """Whose keys pay for a session's model requests."""

    principal: str
    operator: bool = False
    """Whether the operator's keys may be used where the principal has none of its own."""


class ModelAccess(Record, frozen=True, kw_only=True):
    """How the gateway would answer requests of one format: with a key, without needing one, or by playing something."""

    kind: Literal["key", "open", "played"]
    label: str
    """For people: which key, which address, or what is played."""


class InstructionSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where a runtime may find instructions: a request may hold text from the files there."""

    names: Sequence[str] = ()
    """Names of files, wherever they are in the workspace."""
    folders: Sequence[str] = ()
    """Names of folders in the workspace in which every Markdown file counts."""
    outside: Mapping[str, str] = {}
    """Folders outside the workspace, by the names that they get in the list of implicit sources."""


NO_SOURCES = InstructionSources()


class OwnTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What CodeSDK gave to the runtime, each text as often as it was given.

    `tools` are descriptions by CodeSDK's names. `results` are the texts of tool results; None if they are not
    known: then every result counts as the session's. `attachments` are the bytes of images and documents.
    """

    system: Sequence[str] = ()
    messages: Sequence[str] = ()
    tools: Mapping[str, str] = {}
    results: Sequence[str] | None = None
    attachments: Sequence[bytes] = ()


class ModelAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a provider that has just arrived. `content` is equal for two requests that ask the same."""

    purpose: Purpose
    model: str | None
    content: int = 0
    estimated_input: int = 0
    """About how many tokens the model will read."""
    price: "Callable[[Tokens], float | None] | None" = None
    """Returns the list price of so many tokens, or None if it is not known."""
    lacks: str | None = None
    """The name of the key that the provider needs, if neither the gateway nor the runtime has one."""

    @property
    def asks_no_model(self) -> bool:
        """Whether it only counts tokens or lists models, and so uses no tokens itself."""
        return self.purpose in ("count_tokens", "models")

    def price_of(self, tokens: "Tokens") -> float | None:
        """Return the list price of so many tokens, or None if it is not known."""
        return None if self.price is None else self.price(tokens)


class Refused(msgspec.Struct, frozen=True):
    """A request that must not be passed on. The runtime is told so in a way that it does not retry."""

    message: str


class ExactPart(msgspec.Struct, frozen=True):
    """A part of a request: canonical JSON by its hash. `data` is None if the tap already has it."""

    content_hash: str
    data: bytes | None


class SplitInput(msgspec.Struct, frozen=True, kw_only=True):
    """A request, redacted. `parts` are the fields stored apart: a list for the messages."""

    fields: dict[str, Any]
    parts: dict[str, ExactPart | list[ExactPart]]


class ExactInput(SplitInput, frozen=True, kw_only=True):
    """A request as it was sent."""

    wire: str
    own: SplitInput | None = None
    """What the agent asked, if that is not what was sent."""
    tools: list[ManifestEntry]
    estimated_tokens: int
    """About how many tokens the messages have."""
    overhead_tokens: int
    """About how many all else has: the runtime's own prompt, the tools."""
    sources: dict[str, Any]


class StoredInput(msgspec.Struct, frozen=True, kw_only=True):
    """The hashes of the documents of a stored request."""

    sent: str
    own: str | None = None
    """Of what the agent asked, if that is not what was sent."""


MAX_TOKENS = 2**53 - 1
"""More than any request has, and what every reader of JSON can hold. A larger count is not taken for one."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts without overlap, so that their sum is the provider's total.

    `input` leaves out what came from or went to a cache, `output` the reasoning where the provider tells it apart.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class ModelAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended. The counts are None if it used nothing, the cost if the price is unknown."""

    status: RequestStatus
    duration_ms: int
    http_status: int | None = None
    time_to_first_byte_ms: int | None = None
    model: str | None = None
    usage: Tokens | None = None
    estimated: bool = False
    """Whether the counts are not the provider's, because the answer was cut off or did not have them."""
    cost_usd: float | None = None
    error: str | None = None
    """What the provider says went wrong. Not recorded: a runtime is told, which may have lost it on the way."""


class ModelTap(WireTap, Protocol):
    """Records what passes the gateway in a session's log."""

    @property
    def secrets(self) -> Sequence[str]:
        """The secrets that nothing given to the tap may contain."""
        ...

    def learn(self, secrets: Sequence[str]) -> None:
        """Redact these, too, from now on: the keys of the operator, and of CodeSDK."""
        ...

    def learn_login(self, secrets: Sequence[str]) -> None:
        """Redact these, too, from now on: the login of its own that the runtime uses. Too many end its task."""
        ...

    async def own_texts(self) -> OwnTexts:
        """Return what CodeSDK gave the runtime so far in the running task."""
        ...

    async def opened(self, asked: ModelAsked) -> str | Refused:
        """Record a new request. Return its id, or why it must not go out.

        Waits while open requests may use up what is left of a budget.
        """
        ...

    async def taken(self, request_id: str, exact: ExactInput) -> StoredInput:
        """Store the exact request; it is committed when this returns. Return the hashes of its documents."""
        ...

    def closed(self, request_id: str, answered: ModelAnswered) -> None:
        """Record how a request ended. Call it once per id."""
        ...

    async def keep(self, exchange: bytes) -> None:
        """Store a recorded exchange, already redacted, as an artifact of the session."""
        ...


class ModelEndpoints(Protocol):
    """Gives sessions their own way to a model."""

    def access(self, payer: Payer, mode: GatewayMode) -> Mapping[Wire, ModelAccess]:
        """Return how requests of each format would be answered now. Those that lack a key are left out."""
        ...

    def plays(self, session_id: str) -> bool:
        """Return whether it was given what a session plays in place of a provider's model."""
        ...

    async def open(
        self,
        session_id: str,
        token: str,
        tap: ModelTap,
        mode: GatewayMode,
        workspace: Workspace,
        sources: InstructionSources,
        payer: Payer,
        login: LoginKind | None = None,
        rules: WireRules = DEFAULT_RULES,
    ) -> str:
        """Admit a session under a token. Return the base URL for its runtime.

        With `login` its runtime brings a login of its own, and no key is used.
        """
        ...

    async def close(self, session_id: str) -> None:
        """Revoke a session's URL. Must not raise."""
        ...
