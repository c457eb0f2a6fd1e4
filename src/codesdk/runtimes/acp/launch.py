"""A row and a session → what an agent is started with: its files written, its command line and its variables filled in.

The agent works in an empty folder of its own, never in the workspace: agents read settings and run hooks of the
folder that they are in. The workspace is only behind our tools.
"""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.models import STAND_IN
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.acp.row import AgentRow, fill
from codesdk.runtimes.program.environment import Places, make_folder, tokens_in, variables
from codesdk.tools import SERVER

INSTRUCTIONS = (
    "You are a coding agent. You work on the files of one workspace, and only through the tools that are offered"
    " to you. A tool call may be refused; the reason is in its result. Then go on without it, or say what you would"
    " have done."
)
TOOL_TIMEOUT_MS = 24 * 3600 * 1000
"""How long an agent waits for a tool. Long, because a person may be asked; the engine's own limits are the ones that count."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account of the agent's own, which it uses beside the gateway."""

    label: str
    """For people: what kind of account it is. Names nobody."""
    mark: str
    """Whose it is, as a hash: another account needs another process."""
    command: str
    """With which a person logs in."""
    links: Mapping[str, Path]
    """The files of the login, by where the agent looks for them below the session's folder."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is started with. Another setup needs another process."""

    command: tuple[str, ...]
    """The program, and whatever comes before the row's arguments."""
    row: AgentRow
    model: str
    model_url: str
    """Empty if the agent asks its provider by itself."""
    tool_url: str
    instructions: str
    account: Account | None = None
    """None if the gateway answers for its model."""

    @property
    def password(self) -> str:
        """For agents that open a port beside their pipes: nobody else may use it, and we do not."""
        return hashlib.sha256(f"{self.tool_url} {self.model_url}".encode()).hexdigest()

    @property
    def tokens(self) -> list[str]:
        """The secrets in the addresses."""
        return tokens_in(self.model_url, self.tool_url)


def working_folder(places: Places) -> Path:
    """Return the empty folder in which the agent works."""
    return places.folder("work")


def known_names(setup: Setup, places: Places) -> dict[str, str]:
    """Return what texts of a row may name."""
    return {
        "root": str(places.root),
        "home": str(places.home),
        "work": str(working_folder(places)),
        "tmp": str(places.tmp),
        "model": setup.model,
        "model_url": setup.model_url,
        "tool_url": setup.tool_url,
        "key": STAND_IN,
        "instructions": setup.instructions,
        "server": SERVER,
        "tool_timeout_ms": str(TOOL_TIMEOUT_MS),
        "password": setup.password,
    }


def command_line(setup: Setup, places: Places) -> list[str]:
    """Return the command that starts the agent."""
    return [*setup.command, *fill(setup.row.launch.arguments, known_names(setup, places))]


def environment(setup: Setup, places: Places, env: RuntimeEnv) -> dict[str, str]:
    """Return all its variables."""
    return variables(places, env, fill(setup.row.launch.environment, known_names(setup, places)))


def write_files(setup: Setup, places: Places) -> None:
    """Write the agent's files, for their owner only: they hold the session's addresses. Blocking, but short."""
    known = known_names(setup, places)
    for name, content in setup.row.launch.files.items():
        path = places.root / name
        if content is None:
            make_folder(path)
            continue
        make_folder(path.parent)
        path.touch(mode=0o600)
        filled = fill(content, known)
        path.write_bytes(filled.encode() if isinstance(filled, str) else msgspec.json.encode(filled))
    for name, file in _links(setup).items():
        path = places.root / name
        path.unlink(missing_ok=True)
        path.symlink_to(file)


def forget_files(setup: Setup, places: Places) -> None:
    """Remove what holds the session's addresses when the agent has ended: its files and its logs. Blocking."""
    for pattern in (*setup.row.launch.files, *setup.row.launch.forgotten):
        for path in places.root.glob(pattern):
            if path.is_file():
                path.unlink(missing_ok=True)
    for name in _links(setup):
        (places.root / name).unlink(missing_ok=True)


def _links(setup: Setup) -> Mapping[str, Path]:
    return {} if setup.account is None else setup.account.links


def tidy_session(row: AgentRow, places: Places, session_id: str) -> None:
    """Put the file of an agent's session in order before it is loaded. Blocking, but short."""
    if row.session_file is None or not session_id.replace("-", "").isalnum():
        return
    start = {"start": session_id[:8]}
    found = sorted(
        places.root.glob(fill(row.session_file.pattern, start)), key=lambda path: path.stat().st_size
    )
    for stub in found[:-1]:
        stub.unlink()
    if found:
        found[-1].rename(found[-1].with_name(fill(row.session_file.name, start)))


def mcp_server(setup: Setup) -> dict[str, Any]:
    """Return our MCP server as a session is told of it: its address, or a program of ours that passes everything on."""
    if "http" in setup.row.transports:
        return {"type": "http", "name": SERVER, "url": setup.tool_url, "headers": []}
    return {
        "name": SERVER,
        "command": sys.executable,
        "args": ["-m", "codesdk.cli.main", "mcp"],
        "env": [{"name": "CODESDK_MCP_URL", "value": setup.tool_url}],
    }
