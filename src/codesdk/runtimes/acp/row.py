"""`AgentRow`: everything by which one agent of the Agent Client Protocol differs from another, as plain data.

A row can be written in JSON. Texts in it may name what is only known when an agent starts, as `${model_url}`
(`fill`): the session's addresses, its model, its folders. So a new agent is a row, and no code.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from codesdk.contract.bounds import Seconds
from codesdk.contract.capabilities import McpTransport
from codesdk.contract.entry import InstructionFiles, ProgramEntry
from codesdk.contract.models import Wire
from codesdk.contract.ownership import SideMark, ToolNaming
from codesdk.contract.tools import PermissionMode

IdRule = Literal["model", "after_name", "own"]
"""What an agent's `toolCallId` is: the model's id of the call, that id after the tool's name and `__`, or its own."""
ExitRule = Literal["eof", "term"]
"""How an agent is asked to end: by the end of its input, or by SIGTERM. One that does not is killed."""
_NAME = re.compile(r"\$\{(\w+)(:json)?\}")


class Launch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent is started: what follows its program on the command line, its variables, its files."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    files: Mapping[str, Any] = {}
    """By their paths below the session's folder: a text as it is, null for a folder, anything else as JSON."""
    forgotten: tuple[str, ...] = ()
    """Patterns of files of its own, below that folder, that hold the session's addresses: logs, and the like."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent speaks of a call of one of our tools. Places are paths in an update, such as `rawInput.arguments`."""

    names: tuple[str, ...] = ("title",)
    """Where its name is."""
    spelled: tuple[str, ...] = ("${name}",)
    """How it is spelled there, with `${name}` for the wire name of ours."""
    inputs: tuple[str, ...] = ("rawInput",)
    """Where its input is. A text there is JSON."""
    quiet: tuple[str, ...] = ()
    """Titles of announcements that are no calls: what contains our calls, or only shows something."""
    dropped: tuple[str, ...] = ()
    """How texts begin that an agent says in the place of its model."""
    crashed: tuple[str, ...] = ()
    """Words in the error of a prompt by which an agent says that a program behind it has ended: it may start it again."""
    used: Mapping[str, str] = {}
    """Where the answer to a prompt has the tokens that it took, by our names (`input`, `output`, `cache_read`,
    `cache_write`, `reasoning`). Only for an agent that asks its provider by itself: else the gateway counts them."""


class SessionFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file in which an agent keeps a session, if it must be put in order before it is loaded.

    Some write a stub beside it at each start, and find that one first. The largest is kept, under the name given;
    `${start}` stands for the first eight characters of the agent's id of the session.
    """

    pattern: str
    """Below the session's folder."""
    name: str


class AgentRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent."""

    name: str = "given"
    """What follows `acp:` in the name of its runtime."""
    wire: Wire
    """The format of its model requests."""
    model: str
    """The model of a session that names none."""
    launch: Launch = Launch()
    meta: Mapping[str, Any] = {}
    """`_meta` of a new or loaded session."""
    greets: Mapping[str, Mapping[str, Any]] = {}
    """Requests that follow its introduction, by method: to choose a key, or to tell where the model is."""
    begins: Mapping[str, Mapping[str, Any]] = {}
    """Requests that each new session begins with, by method; the session's id is added."""
    naming: ToolNaming = ToolNaming()
    reading: Reading = Reading()
    call_id: IdRule = "model"
    call_id_key: str | None = None
    """The key in a call's `_meta` under which it sends the model's id of the call to our MCP server."""
    transports: tuple[McpTransport, ...] = ("http",)
    lists_tools: bool = True
    """Whether it reads the list of our tools when a session begins, so that it can be waited for."""
    modes: Mapping[PermissionMode, str] = {}
    """Its session modes for ours; empty if it stays in the one it begins with."""
    opines: bool = False
    """Whether what its own policy says of each call is judged beside what ours says."""
    side: tuple[SideMark, ...] = ()
    """Its model requests that are not part of the conversation."""
    appends: tuple[str, ...] = ()
    """What it may write behind what users said, in the same text; what it writes before that is not looked at."""
    tells_breaks: bool = False
    """Whether it is told of a stream that breaks off by an error in the stream, because it looks for the network
    outside if its connection breaks."""
    session_file: SessionFile | None = None
    exit: ExitRule = "eof"
    exit_s: Seconds = 2.0
    images: bool = True
    reasoning: bool = True
    parallel: bool = True
    """Whether calls of one answer run at the same time."""
    steers: bool = False
    """Whether it takes more input while it works, by the extension `_session/steering`."""
    commands: tuple[str, ...] = ("/",)
    """What a prompt begins with that the agent takes for a command of its own."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's row, and what is known of its program."""

    row: AgentRow
    program: ProgramEntry | None = None
    """None for an agent that is given as a command."""
    builds_on: tuple[str, ...] = ()
    """Packages of other runtimes that the row takes things from."""
    instructions: InstructionFiles = InstructionFiles()
    own_tools: Mapping[str, Mapping[str, Any]] = {}
    other_tools: tuple[str, ...] = ()


def fill(value: Any, known: Mapping[str, str]) -> Any:
    """Return a value with all `${name}` in its texts replaced; `${name:json}` by the text in quotation marks.

    An unknown name is left as it is: it may be the agent's own.
    """
    if isinstance(value, str):
        return _NAME.sub(lambda found: _known(found, known), value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {fill(key, known): fill(inner, known) for key, inner in pairs}
    if isinstance(value, list | tuple):
        return [fill(inner, known) for inner in cast("list[Any]", value)]
    return value


def _known(found: re.Match[str], known: Mapping[str, str]) -> str:
    if found[1] not in known:
        return found[0]
    text = known[found[1]]
    return json.dumps(text, ensure_ascii=False) if found[2] else text
