"""What an experiment saw: at the model, at our MCP server, and from the agent itself. Plain data that can be written as JSON."""

from typing import Any

import msgspec

from codesdk.contract.models import Wire


class Offered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool in a model request."""

    name: str
    namespace: str | None = None
    arguments: dict[str, str] = {}
    """The types of its arguments, by name."""
    required: tuple[str, ...] = ()


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model request."""

    wire: Wire
    path: str
    model: str
    address: str
    """Which of the addresses that the agent was given it came to."""
    tools: tuple[Offered, ...] = ()
    system: str = ""
    """How its system texts begin."""
    user: str = ""
    """The last text of the user."""
    main: bool = False
    """Whether it is part of the conversation: the user's last text is ours, or holds it beside an offer of our tools."""
    wrapped: bool = False
    """Whether that text is more than ours."""
    rest: str = ""
    """What follows ours in it."""
    results: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """Which of the words that were looked for are in it."""


class Called(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call at our MCP server."""

    name: str
    arguments: dict[str, Any]
    marks: dict[str, str] = {}
    """The texts in its `_meta`."""
    beside: int = 0
    """How many other calls were running when it came."""


class Made(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that the model made: its id, the agent's name of the tool, and the wire name of ours, if it is one."""

    id: str
    name: str
    namespace: str | None = None
    own: str | None = None
    input: dict[str, Any] = {}

    @property
    def joined(self) -> str:
        """The single name of a tool that may be in a namespace."""
        if self.namespace is None:
            return self.name
        return f"{self.namespace}{'' if self.namespace.endswith('__') else '__'}{self.name}"


class Observation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything that one turn, or the beginning of a session, left behind."""

    asked: list[Asked] = []
    made: list[Made] = []
    called: list[Called] = []
    frames: list[dict[str, Any]] = []
    """What the agent said, its questions included, in order."""
    said: str = ""
    """What the model said, in all its answers."""
    listed: int = 0
    """How often the list of our tools was read."""
    answer: Any = None
    """What the agent answered the prompt with."""
    problem: str | None = None
    """Why there is no such answer."""

    @property
    def main(self) -> list[Asked]:
        """The requests of the conversation."""
        return [asked for asked in self.asked if asked.main]

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The calls that the agent asked about."""
        return [
            frame.get("params", {}).get("toolCall", {})
            for frame in self.frames
            if frame.get("method") == "session/request_permission"
        ]

    @property
    def updates(self) -> list[dict[str, Any]]:
        """The updates that the agent sent."""
        return [
            frame.get("params", {}).get("update", {})
            for frame in self.frames
            if frame.get("method") == "session/update"
        ]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of itself."""

    name: str = ""
    version: str = ""
    capabilities: dict[str, Any] = {}
    logins: tuple[dict[str, Any], ...] = ()
    """Its ways to be authenticated."""
