"""What is known of a probed agent so far: the row as it grows, and each finding in words."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from codesdk.runtimes import AgentRow, OwnAgent, Places
from codesdk.testing.probe.candidates import COMMON
from codesdk.testing.probe.seen import About, Observation

Certainty = Literal["learned", "unknown", "note"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was learned, or could not be."""

    about: str
    certainty: Certainty
    words: str
    means: str = ""
    """What follows from not knowing it."""


Tell = Callable[[Finding], None]


class Probe(msgspec.Struct, kw_only=True):
    """The state of one run."""

    command: tuple[str, ...]
    row: AgentRow
    given: bool
    """Whether the row or the variables that were given name the model's address."""
    places: Places
    tell: Tell
    about: About = About()
    findings: list[Finding] = []
    own_tools: dict[str, Mapping[str, Any]] = {}
    seen: dict[str, Observation] = {}
    """What each experiment saw, by its name."""
    has_way: bool = False
    has_names: bool = False
    lists: bool = False
    """Whether the list of our tools was read over HTTP before the first prompt."""
    session_id: str = ""
    problem: str = ""
    """Why the last attempt to reach the model failed."""

    def learn(self, about: str, words: str, **fields: Any) -> None:
        """Note what was learned, and put it into the row."""
        self.row = msgspec.structs.replace(self.row, **fields)
        self._note(Finding(about=about, certainty="learned", words=words))

    def note(self, about: str, words: str) -> None:
        """Note something that no field of the row is about."""
        self._note(Finding(about=about, certainty="note", words=words))

    def miss(self, about: str, words: str, means: str) -> None:
        """Note what could not be learned, and what follows."""
        self._note(Finding(about=about, certainty="unknown", words=words, means=means))

    def _note(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.tell(finding)

    @property
    def unknown(self) -> list[Finding]:
        """What could not be learned."""
        return [finding for finding in self.findings if finding.certainty == "unknown"]

    @property
    def usable(self) -> bool:
        """Whether a session can be had with it: its model and our tools are reached."""
        return self.has_way and self.has_names

    def agent(self, name: str) -> OwnAgent:
        """Return what the operator can use, under a name."""
        return OwnAgent(
            command=self.command,
            row=msgspec.structs.replace(self.row, name=name),
            own_tools=self.own_tools,
            version=self.about.version,
            unknown=tuple(f"{finding.words} {finding.means}".strip() for finding in self.unknown),
        )


def with_variables(row: AgentRow, variables: Mapping[str, str]) -> AgentRow:
    """Return a row whose agent gets more variables, and those that many programs respect."""
    environment = {**COMMON, **row.launch.environment, **variables}
    launch = msgspec.structs.replace(row.launch, environment=environment)
    return msgspec.structs.replace(row, launch=launch)
