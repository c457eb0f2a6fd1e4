"""The operator's own agents: `agents/NAME.json` in the operator's folder → the runtime `acp:NAME`.

Whoever may write that folder runs CodeSDK, so these commands need no further permission. `codesdk runtimes probe` writes
such files; they can be written by hand as well.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.entry import InstructionFiles, RuntimeEntry
from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.acp import PREFIX, ROWS, AcpOptions, entry_of_row
from codesdk.runtimes.acp.known import Known
from codesdk.runtimes.acp.row import AgentRow
from codesdk.runtimes.program.environment import make_folder, operator_folder

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_MAX_BYTES = 1 << 20


class OwnAgent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent that the operator added."""

    command: tuple[str, ...]
    """The program, by its absolute path, and what comes before the row's arguments."""
    row: AgentRow
    instructions: InstructionFiles = InstructionFiles()
    own_tools: Mapping[str, Mapping[str, Any]] = {}
    """As in `RuntimeEntry`."""
    version: str = ""
    """Of the program that this was found out about."""
    unknown: tuple[str, ...] = ()
    """What could not be learned, in words."""


def own_folder() -> Path:
    """Return where the operator's agents are. It need not exist."""
    return operator_folder() / "agents"


def own_names() -> list[str]:
    """Return the names of the operator's agents. A name that ships is the shipped one's."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = [path.stem for path in own_folder().glob("*.json")]
    return sorted(name for name in found if _NAME.fullmatch(name) and name not in ROWS)


def read_own(name: str) -> OwnAgent:
    """Return an agent by the name of its file. Raise `InvalidRequest` if it cannot be read."""
    path = own_folder() / f"{name}.json"
    try:
        with path.open("rb") as file:
            agent = msgspec.json.decode(file.read(_MAX_BYTES), type=OwnAgent)
    except OSError as error:
        raise InvalidRequest(f"The agent's file {path} cannot be read ({error.strerror}).") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is not an agent's file: {error}. Probe the agent again.") from None
    if not agent.command:
        raise InvalidRequest(f"{path} is not an agent's file: the command is empty. Probe the agent again.")
    return msgspec.structs.replace(agent, row=msgspec.structs.replace(agent.row, name=name))


def write_own(name: str, agent: OwnAgent) -> Path:
    """Write an agent's file, for its owner only, whole or not at all. Return where it is."""
    check_name(name)
    folder = own_folder()
    path = folder / f"{name}.json"
    try:
        make_folder(folder)
        number, made = tempfile.mkstemp(dir=folder, prefix=".new-")
        with os.fdopen(number, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(agent), indent=2) + b"\n")
        Path(made).replace(path)
    except OSError as error:
        raise StorageFailure(f"The agent's file {path} could not be written ({error.strerror}).") from error
    return path


def check_name(name: str) -> None:
    """Raise `InvalidRequest` if an agent cannot be called that."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name!r} cannot be an agent's name: use lower case letters, digits, - and _, at most 40."
        )
    if name in ROWS:
        raise InvalidRequest(f"acp:{name} ships with CodeSDK. Choose another name.")


def entry_of_own(agent: OwnAgent) -> RuntimeEntry:
    """Return what others know of an agent of the operator's."""
    known = Known(row=agent.row, instructions=agent.instructions, own_tools=agent.own_tools)
    return msgspec.structs.replace(
        entry_of_row(known),
        name=f"{PREFIX}{agent.row.name}",
        adapter="codesdk.runtimes.acp.own:make_own",
        options=AcpOptions,
    )


def own_entries() -> list[RuntimeEntry]:
    """Return the entries of all agents of the operator's that can be read."""
    found: list[RuntimeEntry] = []
    for name in own_names():
        with contextlib.suppress(InvalidRequest):
            found.append(entry_of_own(read_own(name)))
    return found


def make_own(agent: str, program: str | None = None) -> Runtime:
    """Return the runtime of an agent of the operator's, by the name of its file; `program` takes the place of its own."""
    from codesdk.runtimes.acp.adapter import AcpRuntime  # entries must be cheap, and this is not

    own = read_own(agent)
    command = own.command if program is None else (program,)
    return AcpRuntime(entry_of_own(own), own.row, command=command)
