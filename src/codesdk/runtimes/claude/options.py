"""How claude is started: the pinned program, a command line with everything of its own switched off, its environment.

It gets no tools but ours and those of its own that the session names, reads no settings, and sends nothing but model
requests to the gateway. No token is in the command line, which every user of the machine can read.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from codesdk.contract.models import STAND_IN
from codesdk.contract.tools import PermissionMode
from codesdk.runtimes.program.finding import Program
from codesdk.tools import SERVER

TOOL_TIMEOUT_MS = 7 * 24 * 3600 * 1000
"""How long claude waits for a tool. Longer than anyone takes to answer a question; the default is a minute."""
PERMISSIONS: dict[PermissionMode, str] = dict.fromkeys(get_args(PermissionMode), "manual")
"""Claude's own mode for each of ours. It always asks. Owned tools are a yes, because they are decided on when they are
called; tools of its own that the session enables are decided on when it asks; everything else is a no."""
_OFF = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK",
    "DISABLE_COMPACT",
)
QUIET = dict.fromkeys(_OFF, "1")
"""What keeps claude from doing anything by itself."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is started with, apart from its conversation. A task that wants another launch gets a new process."""

    model: str | None
    system_prompt: str
    effort: str | None
    permission_mode: PermissionMode
    native_tools: tuple[str, ...] = ()
    login: Path | None = None
    """The folder with the login that it uses, beside the gateway; None if the gateway has a key."""


def bundled() -> Program | None:
    """Return the program that the package brings along, with the version that is written beside it.

    Its own version is not the package's, and to ask the program for it would take a second at each start.
    """
    found = find_spec("claude_agent_sdk")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "_bundled"
    try:
        told = (folder / "claude.version").read_text()
    except OSError:
        return None
    return Program(str(folder / "claude"), told.partition(" ")[0]) if (folder / "claude").exists() else None


def command(program: str, launch: Launch, tool_url: str, prompt_file: Path, conversation: str) -> list[str]:
    """Return the command line. `conversation` is the flag that starts a new conversation or goes on with one."""
    argv = [program, "--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
    argv += ["--include-partial-messages", "--permission-prompt-tool", "stdio"]
    argv += ["--permission-mode", PERMISSIONS[launch.permission_mode]]
    argv += [
        "--tools",
        ",".join(launch.native_tools),
        "--strict-mcp-config",
        "--setting-sources=",
        "--disable-slash-commands",
    ]
    argv += ["--mcp-config", json.dumps({"mcpServers": {SERVER: _server(tool_url)}})]
    argv += ["--system-prompt-file", str(prompt_file), "--system-prompt-snapshot", "off"]
    if launch.model is not None:
        argv += ["--model", launch.model]
    if launch.effort is not None:
        argv += ["--effort", launch.effort]
    return [*argv, conversation]


def own_variables(
    config_dir: Path, tool_url: str, models: Mapping[str, str], *, max_retries: int
) -> dict[str, str]:
    """Return claude's own variables. `models` are those with which it reaches its model."""
    return {
        **QUIET,
        **models,
        "CLAUDE_CONFIG_DIR": str(config_dir),
        "CODESDK_MCP_TOKEN": tool_token(tool_url),
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(max_retries),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
        "CLAUDE_CODE_MCP_ALLOWLIST_ENV": "1",
        "ENABLE_TOOL_SEARCH": "false",  # else a tool is only named until the model asks for it
    }


def key_variables(model_url: str) -> dict[str, str]:
    """Return what sends claude's model requests to the gateway, which has the key. Claude has a word in its place."""
    return {"ANTHROPIC_BASE_URL": model_url, "ANTHROPIC_API_KEY": STAND_IN}


def tool_token(tool_url: str) -> str:
    """Return the token of an address of the form `/m/TOKEN/mcp`."""
    return urlsplit(tool_url).path.split("/")[-2]


def _server(tool_url: str) -> dict[str, Any]:
    """Return the entry for our tools; the token comes from the environment, not from the command line."""
    address = urlsplit(tool_url)
    return {
        "type": "http",
        "url": f"{address.scheme}://{address.netloc}/mcp",
        "headers": {"Authorization": "Bearer ${CODESDK_MCP_TOKEN}"},
        "timeout": TOOL_TIMEOUT_MS,
    }
