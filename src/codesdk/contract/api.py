"""The types of the daemon's HTTP API besides events and actions: pages, reports, problems.

The daemon encodes and describes them (OpenAPI), the client decodes them. A request body with an unknown field
is refused; a response may gain fields, which older readers ignore.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginOutcome, LoginPrompt, ProviderName
from codesdk.contract.actions import TokenScope
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.jobs import JobRow
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import ApprovalRow, SessionRow, Spent, Supplement, TaskRow
from codesdk.contract.retention import Retention
from codesdk.contract.tools import Grant, Record


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body."""


class Collecting(Retention, Body, frozen=True, kw_only=True):
    """How much to keep. What is not named has no limit."""

    dry_run: bool = False


class Problem(Record, frozen=True, kw_only=True):
    """An error (RFC 9457). `code` is the contract's; `detail` says what happened and what to do next."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    runtime: str | None = None
    details: dict[str, Any] | None = None
    request_id: str | None = None


class Health(Record, frozen=True, kw_only=True):
    """The daemon answers."""

    status: Literal["ok"]
    version: str
    contract_version: int


class Readiness(Record, frozen=True, kw_only=True):
    """Whether the daemon takes work, and if not, why."""

    ready: bool
    problems: list[str]


class SessionPage(Record, frozen=True, kw_only=True):
    """Sessions, newest first. Pass `next` as `after` to get the next page; null at the end."""

    sessions: list[SessionRow]
    next: str | None = None


class TaskPage(Record, frozen=True, kw_only=True):
    """A session's tasks, newest first."""

    tasks: list[TaskRow]


class EventPage(Record, frozen=True, kw_only=True):
    """Events in order. Pass `next_after_seq` as `after_seq` to get the next page; null at the end so far."""

    events: list[Any]
    next_after_seq: int | None = None
    damaged: list[int] = msgspec.field(default_factory=list[int])
    """Events in this range that are stored but cannot be read: `codesdk verify` says more."""
    head: int = 0
    """How many events the session has."""


class ApprovalPage(Record, frozen=True, kw_only=True):
    """What waits for an answer, oldest first."""

    approvals: list[ApprovalRow]


class GrantPage(Record, frozen=True, kw_only=True):
    """Tools that are approved for a whole session."""

    grants: list[Grant]


class ArtifactInfo(ArtifactRef, frozen=True, kw_only=True):
    """An artifact, and when it was stored."""

    created_at: str = ""

    @property
    def ref(self) -> ArtifactRef:
        """The artifact as events name it."""
        return msgspec.convert(self, ArtifactRef, from_attributes=True)


class ArtifactPage(Record, frozen=True, kw_only=True):
    """A session's artifacts in the order of their ids. `next` as in `SessionPage`."""

    artifacts: list[ArtifactInfo]
    next: str | None = None


class JobPage(Record, frozen=True, kw_only=True):
    """Jobs of extensions, newest first. `next` as in `SessionPage`."""

    jobs: list[JobRow]
    next: str | None = None


class Transcript(Record, frozen=True, kw_only=True):
    """A session's messages, and what stands beside them."""

    messages: list[Message]
    supplements: list[Supplement] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one


class RuntimeInfo(Record, frozen=True, kw_only=True):
    """A runtime and what it can do."""

    name: str
    alias: str | None
    capabilities: Capabilities


class RuntimePage(Record, frozen=True, kw_only=True):
    """The runtimes that sessions can be created with."""

    runtimes: list[RuntimeInfo]


class RuntimeAuth(Record, frozen=True, kw_only=True):
    """Whether a task on a runtime could begin: its program is available, and somebody pays for its model."""

    name: str
    ready: bool
    available: Availability
    auth: AuthStatus


class LoginState(Record, frozen=True, kw_only=True):
    """Where a login stands: what the person has to do, whether an answer is waited for, how it ended."""

    login_id: str
    prompt: LoginPrompt | None = None
    asks: bool = False
    outcome: LoginOutcome | None = None
    """None while it goes on."""


class LoginAnswer(Body, frozen=True, kw_only=True):
    """What a person answers in a login. A secret."""

    text: str

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks.
        return "LoginAnswer()"

    @property
    def secrets(self) -> Sequence[str]:
        """What no error may repeat."""
        return (self.text,)


class NewKey(Body, frozen=True, kw_only=True):
    """A provider key to store: the caller's own or, with the scope admin, another principal's."""

    provider: ProviderName
    key: str
    principal: str | None = None

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks.
        return f"NewKey({self.provider!r}, {self.principal!r})"

    @property
    def secrets(self) -> Sequence[str]:
        """What no error may repeat."""
        return (self.key,)


class KeyInfo(Record, frozen=True, kw_only=True):
    """A stored provider key, without the key: whose it is, and for what."""

    principal: str
    provider: ProviderName
    created_at: str


class KeyPage(Record, frozen=True, kw_only=True):
    """Stored provider keys, without the keys."""

    keys: list[KeyInfo]


class TokenInfo(Record, frozen=True, kw_only=True):
    """Who a request comes from, as the daemon sees it."""

    principal: str
    scopes: list[TokenScope]


class UsageAnswer(Record, frozen=True, kw_only=True):
    """What model requests used: over all stored sessions of the caller, or in one session."""

    spent: Spent
    sessions: int


class Finding(Record, frozen=True, kw_only=True):
    """Something in a stored session that breaks the contract."""

    invariant: str
    """Its number; `store` for a damaged store, `equipment` for secrets that others could read, `replay` for a difference."""
    message: str
    seq: int | None = None


class CheckReport(Record, frozen=True, kw_only=True):
    """What a check of a stored log found. A sound log has no findings."""

    ok: bool
    events: int
    findings: list[Finding]
    interrupted: bool = False
    """Whether its last task was interrupted and not yet closed. That breaks nothing: the next use closes it."""


class ExtensionInfo(Record, frozen=True, kw_only=True):
    """An extension that was found: loaded, or rejected and why."""

    status: Literal["loaded", "rejected"]
    root: str
    source: Literal["project", "package", "root"]
    name: str | None = None
    version: str | None = None
    agent_id: str | None = None
    display_name: str | None = None
    reason: str | None = None
    """Why it was rejected."""
    warnings: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    events: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    """The types of events that its handlers are called for."""
    actions: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    """The actions that it declares."""
    handlers: int = 0
    jobs: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    """The types of jobs that it runs."""
    runtimes: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    """The runtimes that it is bound to; none means all."""


class ExtensionPage(Record, frozen=True, kw_only=True):
    """All extensions that were found, in order of precedence. Each reload that takes effect has its own generation."""

    generation: int
    trust: Literal["disabled", "warn", "enforced"]
    extensions: list[ExtensionInfo]


class Reload(Body, frozen=True, kw_only=True):
    """There is nothing to say: all extensions are loaded again."""
