"""A session → what opencode is started with: its configuration, its environment and the files it finds.

Everything that opencode does by itself is off: its tools, titles, summaries, snapshots, plugins, instruction files,
updates. Its only provider is the session's gateway, its only tools those that the session offers over MCP.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from codesdk.contract.models import STAND_IN, Wire
from codesdk.runtimes.opencode import PREFIX, Dialect
from codesdk.runtimes.program.environment import Places, make_folder
from codesdk.tools import SERVER

AGENT = "codesdk"
PROVIDER = "codesdk"
TOOL_TIMEOUT_MS = 24 * 3600 * 1000
"""How long opencode waits for a tool. Long, because a person may be asked; the engine's own limits are the ones that count."""
CONTEXT_TOKENS = 1_000_000
"""What opencode takes for the model's context. It never shortens a conversation here, so it need not be true."""
PERMISSION = {"*": "deny", "doom_loop": "allow", f"{PREFIX}*": "allow"}
"""The last rule that fits counts. A tool under a plain denial is not even offered; three equal calls in a row, which
opencode takes for a loop, are not its business. Our tools are decided on when they are called."""

INSTRUCTIONS = (
    "You are a coding agent. You work on the files of one workspace, and only through the tools that are offered"
    " to you; paths are relative to that workspace, not to the working directory that is named below. A tool call"
    " may be refused; the reason is in its result. Then go on without it, or say what you would have done."
)

_PLUGIN = "@opencode-ai/plugin"
_OFF = (
    "AUTOUPDATE",
    "MODELS_FETCH",
    "LSP_DOWNLOAD",
    "SHARE",
    "DEFAULT_PLUGINS",
    "CLAUDE_CODE",
    "CLAUDE_CODE_PROMPT",
    "CLAUDE_CODE_SKILLS",
    "EXTERNAL_SKILLS",
    "PROJECT_CONFIG",
    "TERMINAL_TITLE",
    "AUTOCOMPACT",
    "PRUNE",
    "FILETIME_CHECK",
)


class Way(NamedTuple):
    """How opencode speaks to the gateway as one kind of provider."""

    wire: Wire
    package: str
    """The client for it, which is part of the program."""
    path: str
    model: str
    """What is asked for if the session names no model."""


WAYS: Mapping[Dialect, Way] = {
    "openai-compatible": Way("chat", "@ai-sdk/openai-compatible", "/v1", "gpt-5.5"),
    "openai": Way("responses", "@ai-sdk/openai", "/v1", "gpt-5.5"),
    "anthropic": Way("anthropic", "@ai-sdk/anthropic", "/v1", "claude-sonnet-5-5"),
    "google": Way("gemini", "@ai-sdk/google", "/v1beta", "gemini-2.5-pro"),
}


def configuration(
    dialect: Dialect,
    model: str,
    model_url: str,
    tool_url: str,
    instructions: Sequence[str],
    max_output_tokens: int,
) -> dict[str, Any]:
    """Return the whole configuration. It holds the session's addresses, so it is never asked for again."""
    named = f"{PROVIDER}/{model}"
    return {
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "lsp": False,
        "formatter": False,
        "model": named,
        "small_model": named,
        "enabled_providers": [PROVIDER],
        "default_agent": AGENT,
        "compaction": {"auto": False, "prune": False},
        "provider": {PROVIDER: _provider(WAYS[dialect], model, model_url, max_output_tokens)},
        "agent": {
            AGENT: {
                "mode": "primary",
                "prompt": "\n\n".join(instructions or (INSTRUCTIONS,)),
                "permission": PERMISSION,
            },
            "title": {"disable": True},
        },
        "mcp": {SERVER: _server(tool_url)},
        "experimental": {"continue_loop_on_deny": True},
    }


def own_variables(configured: Mapping[str, Any], password: str) -> dict[str, str]:
    """Return opencode's own variables. The configuration is among them, so that it lies in no file."""
    return {
        **{f"OPENCODE_DISABLE_{name}": "1" for name in _OFF},
        "OPENCODE_PURE": "1",
        "OPENCODE_CONFIG_CONTENT": json.dumps(configured),
        "OPENCODE_SERVER_PASSWORD": password,
        # Should it want to install something after all, it does not ask the registry for it.
        "NPM_CONFIG_OFFLINE": "true",
    }


def working_folder(places: Places) -> Path:
    """Return the directory that opencode works in, private and empty."""
    return places.folder("work")


def make_folders(places: Places, version: str) -> None:
    """Make what opencode must find. Blocking, but short.

    At each start it installs a package for plugins beside its configuration, from the registry. It has no switch for
    that, but does not if it finds the package installed and locked.
    """
    make_folder(places.tmp)  # it goes when the program ends
    working_folder(places)
    # It looks for a repository around its directory, for its root to be named to the model. The search ends here.
    (places.root / ".git").write_text("")
    config = make_folder(places.root / "config" / "opencode")
    make_folder(config / "node_modules")
    wanted = {"dependencies": {_PLUGIN: version}}
    (config / "package.json").write_text(json.dumps(wanted))
    lock = {"lockfileVersion": 3, "requires": True, "packages": {"": wanted}}
    (config / "package-lock.json").write_text(json.dumps(lock))


def _provider(way: Way, model: str, model_url: str, max_output_tokens: int) -> dict[str, Any]:
    """Describe the gateway as a provider with one model, of which opencode believes all that it is told."""
    known = {
        "name": model,
        "attachment": True,
        "reasoning": True,
        "temperature": False,
        "tool_call": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": CONTEXT_TOKENS, "output": max_output_tokens},
    }
    options = {"baseURL": f"{model_url}{way.path}", "apiKey": STAND_IN, "timeout": False}
    return {"npm": way.package, "name": "CodeSDK", "options": options, "models": {model: known}}


def _server(tool_url: str) -> dict[str, Any]:
    """Describe our MCP server. The token of its address goes into a header, since addresses end up in messages."""
    address = urlsplit(tool_url)
    return {
        "type": "remote",
        "url": f"{address.scheme}://{address.netloc}/mcp",
        "oauth": False,
        "headers": {"Authorization": f"Bearer {address.path.split('/')[-2]}"},
        "timeout": TOOL_TIMEOUT_MS,
    }
