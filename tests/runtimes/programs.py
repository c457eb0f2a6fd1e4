"""The runtimes that are programs, as the registry has them: a new one is tried by all tests that read this."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.counts import COUNTS

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.registry import create_runtime, entries
from codesdk.testing.conformance import MATRIX, MakeRuntime, Scenario

_TWICE = ("acp:gemini", "acp:opencode")
"""Rows whose program is also that of a runtime by itself, which plays more: they have their turn in a soak."""
PROGRAMS: dict[str, RuntimeEntry] = {
    name: entry
    for name, entry in entries().items()
    if entry.program is not None and (COUNTS.whole_matrix or name not in _TWICE)
}
OPTIONS: dict[str, dict[str, Any]] = {
    "minicode": {"max_retries": COUNTS.claude_retries},
    "claude-agent-sdk": {"max_retries": COUNTS.claude_retries},
    "opencode-server": {"max_retries": COUNTS.claude_retries},
}
"""How a runtime is made in tests if not as the registry makes it: only for how long it tries again."""
WHOLE = ("claude-agent-sdk", "codex-sdk", "gemini-cli-core", "opencode-server", "acp:codex-acp")
"""Those that play every row in `make test`, too. In a soak all do."""
TRIED = [name for name in PROGRAMS if COUNTS.whole_matrix or name in WHOLE]
"""Those that every other test about programs tries in this run: a start takes seconds."""
ESSENTIAL = (
    "tool approve",
    "tool deny with reason",
    "stop mid-stream",
    "stop in a tool",
    "stop while an approval waits",
    "native tool attempt does not run",
    "no native tool in the exact input",
    "every native name called, none run",
    "hostile workspace runs nothing",
    "resume after restart",
    "resume by reconstruction",
)
"""What every program plays in every run: the rows about ownership, tools, denials, stops and resuming."""


def rows_of(name: str) -> tuple[str, ...]:
    """Return the rows of the matrix that a program plays in this run, in order."""
    return MATRIX if name in WHOLE or COUNTS.whole_matrix else ESSENTIAL


def made(name: str, **options: Any) -> MakeRuntime:
    """Return what makes a runtime for the matrix."""

    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncIterator[Runtime]:
        program = {"program": scenario.program} if name in PROGRAMS else {}
        yield create_runtime(name, **program, **OPTIONS.get(name, {}), **options)

    return make
