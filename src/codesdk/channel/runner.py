"""A running program as an arbiter has it: commands go in, parsed events come out.

`process` starts real programs, `scripted` plays some for tests.
"""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from codesdk.channel.protocol import ParseError, PolicyCommand, ToolEvent

Stream = Literal["stdout", "stderr"]
QUEUED = 256


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What is started, and where. Without `env` the program has our own environment."""

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] | None = None


class ToolSeen(msgspec.Struct, frozen=True):
    """The program printed an event."""

    stream: Stream
    event: ToolEvent
    size: int


class ParseFailed(msgspec.Struct, frozen=True):
    """The program printed a line that wants to be an event. It passed through; one too long to be held is empty here."""

    stream: Stream
    error: ParseError
    line: str = ""


class StreamClosed(msgspec.Struct, frozen=True):
    """One of the program's outputs has ended."""

    stream: Stream


class StdinBroken(msgspec.Struct, frozen=True):
    """Nothing can be written to the program any more."""

    why: str
    stuck: bool = False
    """Whether a decision was on its way that the program does not read."""


class OutputLost(msgspec.Struct, frozen=True):
    """Nobody reads what passes through."""

    stream: Stream


ParsedEvent = ToolSeen | ParseFailed | StreamClosed | StdinBroken | OutputLost


class RunnerSession(Protocol):
    """A running program: its exit code, a queue of commands to it, and a stream of what it says."""

    status: asyncio.Future[int]
    control: asyncio.Queue[PolicyCommand]
    events: asyncio.Queue[ParsedEvent]
    tails: dict[Stream, bytes]
    closed: set[Stream]
    heard_at: float

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all it started. Must not raise."""
        ...

    async def close(self) -> None:
        """Release everything. Must not raise."""
        ...


class Exchange:
    """What goes in and out of a running program. A runner fills in `status` and `events` and empties `control`."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit code, negative for a signal, once it has ended."""
        self.control: asyncio.Queue[PolicyCommand] = asyncio.Queue(QUEUED)
        self.events: asyncio.Queue[ParsedEvent] = asyncio.Queue(QUEUED)
        self.tails: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        """The last that passed through."""
        self.closed: set[Stream] = set()
        """Its outputs that have ended."""
        self.heard_at = asyncio.get_running_loop().time()
        """When it last printed something."""

    def heard(self) -> None:
        """Note that the program has printed something."""
        self.heard_at = asyncio.get_running_loop().time()


class Runner(Protocol):
    """Starts programs."""

    async def start_session(self, launch: Launch) -> RunnerSession:
        """Start one. Raise `TaskFailure` if it cannot run."""
        ...
