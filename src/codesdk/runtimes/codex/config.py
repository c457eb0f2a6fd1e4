"""A session → the files that lock codex down: `config.toml` and a catalog of models, both rewritten at each start.

Everything that codex does by itself is off: its tools, instruction files, skills, apps, history, analytics, updates.
Its only model is the session's gateway. Its only tools are those that the session offers over MCP, and those of its
own that the session enables.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.redaction import Redactor
from codesdk.runtimes.codex import NAME
from codesdk.runtimes.codex.features import OFF
from codesdk.runtimes.codex.native import ASK, running
from codesdk.runtimes.program.agent_files import read_agent_file
from codesdk.runtimes.program.finding import told_by
from codesdk.tools import SERVER

DEFAULT_MODEL = "gpt-5.5"
PROVIDER = "codesdk"
_CATALOG_S = 30.0
_IDLE_MS = 15 * 60 * 1000
TOOL_TIMEOUT_S = 24 * 3600
"""How long codex waits for a tool. Long, because a person may be asked; the engine's own limits are the ones that count."""

INSTRUCTIONS = (
    "You are a coding agent. You work on the files of one workspace, and only through the tools that are offered"
    " to you. A tool call may be refused; the reason is in its result. Then go on without it, or say what you would"
    " have done."
)

_LOCKED = """\
check_for_update_on_startup = false
web_search = "disabled"
include_permissions_instructions = false
include_environment_context = false
include_apps_instructions = false
include_collaboration_mode_instructions = false
project_doc_max_bytes = 0
hide_agent_reasoning = false

[model_providers.codesdk]
name = "CodeSDK"
base_url = {base_url}
wire_api = "responses"
{credential}
request_max_retries = 2
stream_max_retries = 2
stream_idle_timeout_ms = {idle_ms}

[features]
{features}

[skills]
include_instructions = false
[skills.bundled]
enabled = false
[tools.experimental_request_user_input]
enabled = {asks}
[analytics]
enabled = false
[history]
persistence = "none"
[shell_environment_policy]
inherit = {inherited}
"""

_KEY = 'env_key = "CODESDK_MODEL_KEY"'
_ACCOUNT = "requires_openai_auth = true"
_NATIVE_FEATURES = {"exec_command": "shell_tool", ASK: "default_mode_request_user_input"}
_CONFINED = """\
[sandbox_workspace_write]
network_access = false
exclude_slash_tmp = true
"""
"""Codex's own sandbox, for what it runs itself."""

_OFF = (*OFF, "instant_interrupt")
"""The last one is not a tool either: input for a running turn must wait for its place."""

_DIRECT: dict[str, Any] = {
    "tool_mode": "direct",
    "multi_agent_version": None,
    "apply_patch_tool_type": None,
    "supports_search_tool": False,
    "experimental_supported_tools": [],
    "use_responses_lite": False,
    "upgrade": None,
}
"""The part of a model's entry by which tools are offered one by one, and none of codex's own."""


def model_address(model_url: str, *, login: bool) -> str:
    """Return where codex sends model requests, given the session's address at the gateway."""
    return f"{model_url}/backend-api/codex" if login else f"{model_url}/v1"


def config_toml(
    model_url: str, model: str, catalog: Path, natives: Sequence[str] = (), *, login: bool = False
) -> str:
    """Return the configuration, locked except for the native tools that the session enables.

    With `login` codex uses the account in its folder. All that it asks of the provider goes to the gateway, too. With `--strict-config` codex refuses it if it does not know a key, so that no lock is lost to a renamed one.
    """
    head = (
        f"model = {json.dumps(model)}\n"
        f"model_provider = {json.dumps(PROVIDER)}\n"
        f"model_catalog_json = {json.dumps(str(catalog))}\n"
    )
    if login:
        head += f"chatgpt_base_url = {json.dumps(f'{model_url}/backend-api/')}\n"
        head += 'cli_auth_credentials_store = "file"\n'
    on = {_NATIVE_FEATURES.get(name) for name in natives}
    features = "\n".join(f"{name} = {json.dumps(name in on)}" for name in _OFF)
    locked = _LOCKED.format(
        base_url=json.dumps(model_address(model_url, login=login)),
        credential=_ACCOUNT if login else _KEY,
        idle_ms=_IDLE_MS,
        features=features,
        asks=json.dumps(ASK in natives),
        inherited=json.dumps("core" if running(natives) else "none"),
    )
    return head + locked + (_CONFINED if running(natives) else "")


def write_config(
    home: Path,
    model_url: str,
    model: str,
    models: list[dict[str, Any]],
    natives: Sequence[str] = (),
    *,
    login: bool = False,
) -> None:
    """Write both files. They hold the session's address, so they are for their owner only. Blocking, but short."""
    catalog = home / "catalog.json"
    _write(catalog, json.dumps({"models": [catalog_entry(models, model, natives)]}))
    _write(home / "config.toml", config_toml(model_url, model, catalog, natives, login=login))


def forget_tokens(home: Path, tokens: Sequence[str]) -> None:
    """Remove tokens from what codex leaves when it has ended: from its configuration, and its whole log.

    The log cannot be switched off, has the address of each request, and nobody reads it. Blocking, but short.
    """
    for log in home.glob("logs_*.sqlite*"):
        log.unlink(missing_ok=True)
    path = home / "config.toml"
    try:
        told = read_agent_file(path).decode()
    except (OSError, ValueError):  # not the file that we wrote; the next start writes it again
        path.unlink(missing_ok=True)
        return
    _write(path, Redactor(tokens).text(told))


def catalog_entry(models: list[dict[str, Any]], model: str, natives: Sequence[str] = ()) -> dict[str, Any]:
    """Return a model's entry, made direct. One that codex does not know is described like the default model."""
    known = {entry["slug"]: entry for entry in models}
    entry = {**known.get(model, known[DEFAULT_MODEL]), "slug": model, **_DIRECT}
    return {**entry, "apply_patch_tool_type": "freeform"} if "apply_patch" in natives else entry


def check_effort(models: list[dict[str, Any]], model: str, effort: str | None) -> None:
    """Raise `InvalidRequest` for an effort that a model does not have: codex would send another one."""
    levels: list[dict[str, str]] = catalog_entry(models, model).get("supported_reasoning_levels", [])
    known = [level["effort"] for level in levels]
    if effort is not None and effort not in known:
        raise InvalidRequest(
            f"The model {model} has no effort {effort}. It has: {', '.join(known) or 'none'}.", runtime=NAME
        )


async def list_models(program: str) -> list[dict[str, Any]]:
    """Ask codex for the models it knows. It answers from what is built in, without a connection."""
    homes = ("HOME", "CODEX_HOME")
    told = await told_by(program, "debug", "models", "--bundled", timeout_s=_CATALOG_S, homes=homes)
    with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError):
        models: list[dict[str, Any]] = json.loads(told)["models"]
        if any(entry["slug"] == DEFAULT_MODEL for entry in models):
            return models
    raise TaskFailure("codex did not list its models. Install it again.", code="RUNTIME_UNAVAILABLE")


def thread_options(
    cwd: str, model: str, tool_url: str | None, natives: Sequence[str] = (), instructions: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what a thread is started and resumed with. Codex does not keep the tools, so they are given each time.

    With tools of its own codex asks about each call, and keeps what it runs from writing outside the workspace.
    """
    servers: Mapping[str, Any] = {} if tool_url is None else {SERVER: _server(tool_url)}
    return {
        "cwd": cwd,
        "model": model,
        "modelProvider": PROVIDER,
        "approvalPolicy": "untrusted" if running(natives) else "never",
        "sandbox": "workspace-write" if running(natives) else "read-only",
        "baseInstructions": "\n\n".join(instructions or (INSTRUCTIONS,)),
        "config": {"mcp_servers": servers},
    }


def _server(tool_url: str) -> dict[str, Any]:
    """Describe our MCP server. Codex itself asks nobody: a call is decided on when it reaches us."""
    return {
        "url": tool_url,
        "required": True,
        "default_tools_approval_mode": "approve",
        "supports_parallel_tool_calls": True,
        "tool_timeout_sec": TOOL_TIMEOUT_S,
        "startup_timeout_sec": 30,
    }


def _write(path: Path, text: str) -> None:
    """Write a file in the place of whatever is there: codex may have left a link or a pipe."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
