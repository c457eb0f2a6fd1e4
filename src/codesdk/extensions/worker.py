"""`Worker`: where the code of one extension runs. A thread of this process or a process of its own; nobody else knows which."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from codesdk.extensions.outcomes import AgentRuntimeEvent
from codesdk.extensions.registry import Registration
from codesdk.extensions.snapshot import Snapshot
from codesdk.extensions.tools import ToolPorts

Hosting = Literal["in_process", "subprocess"]


class Code(NamedTuple):
    """The code of an extension: its name, the file that defines `register`, and what was read and hashed.

    `env` is what a process of its own has in its environment besides the usual.
    """

    name: str
    file: str
    snapshot: Snapshot
    env: Mapping[str, str] = MappingProxyType({})


class Worker(Protocol):
    """Runs all code of an extension."""

    async def register(self, timeout_s: float) -> Sequence[Registration]:
        """Import the code and let it register. Once, before anything else.

        Raise `InvalidRequest` for what cannot be registered, `HandlerTimeout`, or whatever it fails of.
        """
        ...

    async def handle(self, one: Registration, event: AgentRuntimeEvent, ports: ToolPorts) -> object:
        """Call a handler with a copy of the event, and return what it returns as plain JSON.

        Raise what it fails of, or `HandlerTimeout`. When this ends, so have the handler's tools.
        """
        ...

    def close(self) -> None:
        """Begin to end. May be called twice."""
        ...

    async def ended(self) -> None:
        """Wait, after `close`, until nothing of it runs that can be ended."""
        ...
