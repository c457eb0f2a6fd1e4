"""Lines → typed messages, and back. What a program prints are events; what is written to its stdin are commands.

Both are one JSON object a line. Reading is lenient where nothing depends on it (unknown fields, a time as text or
number) and strict where something does: an id, a tool, whether the program waits. Pure.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast, get_args

import msgspec

VERSION = 1
MARKER = b"@@MEM_TOOL_EVENT@@ "
"""What a line begins with that is an event for sure."""
CAPABILITY = "policy.decision.v1"
MAX_ID_CHARS = 256
TIMEOUT_MS = 300_000
"""How long a program waits for a decision unless it is told something else."""

Action = Literal["read", "write", "net", "exec"]
ACTIONS: tuple[Action, ...] = get_args(Action)
AbortCode = Literal["user_cancel", "policy_violation", "fatal_error"]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARS)]
Time = str | int | float


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every message has."""

    v: Literal[1]
    ts: Time
    id: Name
    run_id: str | None = None
    trace: dict[str, Any] | None = None


class ToolRequest(Envelope, frozen=True, kw_only=True, tag="tool.request"):
    """A call that the program is about to make. `requires_policy`: it waits for a decision."""

    tool: Name
    requires_policy: bool
    action: str = "exec"
    args: dict[str, Any] = {}
    rationale: str | None = None

    @property
    def kind(self) -> Action:
        """What the call does. An action that nobody knows counts as the most dangerous one."""
        return self.action if self.action in ACTIONS else "exec"


class ToolResult(Envelope, frozen=True, kw_only=True, tag="tool.result"):
    """How a call ended."""

    ok: bool
    output: Any = None
    error: str | None = None


class ToolProgress(Envelope, frozen=True, kw_only=True, tag="tool.progress"):
    """How far a call is, or a warning of the program's."""

    stage: str
    message: str | None = None
    percent: float | None = None


class PolicyAck(Envelope, frozen=True, kw_only=True, tag="policy.ack"):
    """The program has read a command, and lives."""


ToolEvent = ToolRequest | ToolResult | ToolProgress | PolicyAck


class Command(Envelope, frozen=True, kw_only=True):
    """What every command has. `nonce` is another one each time, so that one that is sent again can be told."""

    nonce: str | None = None


class PolicyDecision(Command, frozen=True, kw_only=True, tag="policy.decision"):
    """Whether a call may run. For a program, `ask` is a deny: people are asked on the other side."""

    decision: Literal["allow", "deny", "ask"]
    reason: str = ""
    rule_id: str | None = None
    constraints: dict[str, Any] | None = None
    expires_in_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None


class PolicyPing(Command, frozen=True, kw_only=True, tag="policy.ping"):
    """Somebody decides here. Also the question whether the program still lives."""

    capabilities: Sequence[str] = ()
    timeout_ms: Annotated[float, msgspec.Meta(gt=0)] | None = None


class PolicyAbort(Command, frozen=True, kw_only=True, tag="policy.abort"):
    """The program has to end."""

    reason: str = ""
    code: AbortCode | None = None


PolicyCommand = PolicyDecision | PolicyPing | PolicyAbort
AnyMessage = ToolEvent | PolicyCommand


class ParseError(msgspec.Struct, frozen=True, kw_only=True):
    """A line that wants to be an event and is none, and why."""

    kind: Literal["json", "missing_field", "invalid_field", "version", "too_long"]
    problem: str
    waits: str | None = None
    """The id of a request that could be read so far: its program may wait for an answer."""


class _Probe(msgspec.Struct):
    v: Any = msgspec.UNSET
    type: Any = msgspec.UNSET
    id: Any = None


_EVENTS = msgspec.json.Decoder(ToolEvent)
_COMMANDS = msgspec.json.Decoder(PolicyCommand)
_PROBES = msgspec.json.Decoder(_Probe)
_KNOWN = {cast("str", kind.__struct_config__.tag) for kind in get_args(ToolEvent)}
_SIGNS = (b'"tool.', b'"policy.', b"\\u")
"""What a line has that is an event without the marker; the last, since a type may be written in escapes."""
_ORDINARY = (None, None)


def encode(message: AnyMessage, *, marked: bool = False) -> bytes:
    """Return a message as a line."""
    return (MARKER if marked else b"") + msgspec.json.encode(message) + b"\n"


def read_event(line: bytes) -> tuple[ToolEvent | None, ParseError | None]:
    """Return the event that a line is, or what is wrong with one that wants to be one; neither for ordinary output."""
    marked = line.startswith(MARKER)
    if not marked and not any(sign in line for sign in _SIGNS):
        return _ORDINARY  # programs print much JSON of their own, which need not be parsed to know that
    body = line[len(MARKER) :] if marked else line
    try:
        probe = _PROBES.decode(body)
    except (ValueError, RecursionError) as error:
        return (None, ParseError(kind="json", problem=_words(error))) if marked else _ORDINARY
    if probe.v is msgspec.UNSET or probe.type is msgspec.UNSET:
        missing = "v" if probe.v is msgspec.UNSET else "type"
        problem = ParseError(kind="missing_field", problem=f"it has no `{missing}`")
        return (None, problem) if marked else _ORDINARY
    if not isinstance(probe.type, str) or probe.type not in _KNOWN:
        # Programs have JSON of their own, which is theirs to print.
        problem = ParseError(kind="invalid_field", problem="nobody knows its `type`")
        return (None, problem) if marked else _ORDINARY
    if isinstance(probe.v, bool) or probe.v != VERSION:
        return None, _misfit(probe, "version", f"its version is not {VERSION}")
    try:
        return _EVENTS.decode(body), None
    except msgspec.ValidationError as error:
        words = _words(error)
        return None, _misfit(
            probe, "missing_field" if "missing required" in words else "invalid_field", words
        )
    except (ValueError, RecursionError) as error:
        return None, _misfit(probe, "json", _words(error))


def read_command(line: bytes) -> PolicyCommand | None:
    """Return a command, or None for a line that is none."""
    try:
        return _COMMANDS.decode(line)
    except (ValueError, RecursionError):
        return None


def now() -> str:
    """Return the time as messages carry it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(ts: Time) -> float | None:
    """Return the time of a message in seconds since 1970; None if it is in no known form. A number is milliseconds."""
    try:
        if isinstance(ts, int | float):
            return ts / 1000
        return datetime.fromisoformat(ts).timestamp()
    except (ValueError, OverflowError):
        return None


def _misfit(probe: _Probe, kind: Any, problem: str) -> ParseError:
    waits = probe.type == "tool.request" and isinstance(probe.id, str) and 0 < len(probe.id) <= MAX_ID_CHARS
    return ParseError(kind=kind, problem=problem, waits=probe.id if waits else None)


def _words(error: BaseException) -> str:
    # Of the problem only: what msgspec quotes of the input is at most a name.
    return (str(error) or "it is nested too deeply")[:200]
