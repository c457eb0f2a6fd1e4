"""Runtime names and aliases → runtimes, imported only when one is asked for."""

import difflib
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.runtime import Runtime

RUNTIMES: dict[str, str] = {
    "claude-agent-sdk": "codesdk.runtimes.claude.adapter:ClaudeRuntime",
    "codex-sdk": "codesdk.runtimes.codex.adapter:CodexRuntime",
    "scripted": "codesdk.runtimes.scripted.adapter:ScriptedRuntime",
}
"""What this version has, by full name."""

PINS: dict[str, str] = {
    "claude-agent-sdk": "codesdk.runtimes.claude.options:PIN",
    "codex-sdk": "codesdk.runtimes.codex.adapter:PIN",
}
"""Where it says which version of a program a runtime was tested with."""

ALIASES: dict[str, str] = {
    "claude": "claude-agent-sdk",
    "codex": "codex-sdk",
    "gemini": "gemini-cli-core",
    "opencode": "opencode-server",
}
"""Short names. One of a runtime that this version does not have is as unknown as its full name."""


def runtime_names() -> list[str]:
    """Return the full names of the runtimes that can be created, sorted."""
    return sorted(RUNTIMES)


def resolve(name: str) -> str:
    """Return the full name for a name or alias. Raise `InvalidRequest` if this version has no such runtime."""
    full = ALIASES.get(name, name)
    if full in RUNTIMES:
        return full
    usable = [*RUNTIMES, *(alias for alias, target in ALIASES.items() if target in RUNTIMES)]
    close = difflib.get_close_matches(name, usable, n=1)
    meant = f' Did you mean "{close[0]}"?' if close else ""
    if full in ALIASES.values():
        problem = f"The runtime {full} is not part of this version."
    else:
        problem = f'There is no runtime "{name}".'
    raise InvalidRequest(f"{problem}{meant} Available: {', '.join(runtime_names())}.")


def create_runtime(name: str, **options: Any) -> Runtime:
    """Import the runtime of this name or alias and create it. Raise `InvalidRequest` if it is unknown."""
    module, _, attribute = RUNTIMES[resolve(name)].partition(":")
    factory = cast("Callable[..., Runtime]", getattr(import_module(module), attribute))
    return factory(**options)
