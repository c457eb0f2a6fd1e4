"""The operator's options for tools beyond those on files → a registry with these tools, ready to use."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec

from codesdk.sandbox import SandboxKind, SandboxLimits, open_sandbox
from codesdk.tools.registry import ToolRegistry
from codesdk.tools.workspace.file_tools import builtin_registry


class ExecOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Enables `workspace.exec`.

    `allow` lists prefixes of commands that may run: `[["pytest"], ["git", "diff"]]`.
    """

    allow: Sequence[Sequence[str]]
    sandbox: SandboxKind = "bubblewrap"
    sandbox_options: dict[str, object] = {}
    limits: SandboxLimits = SandboxLimits()
    hosts: Sequence[str] = ()
    """Hosts that commands may reach, through a proxy; empty means no network."""
    writable: bool = True
    """Whether commands may change the workspace."""


class FetchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Enables `http.fetch`. `hosts` limits it to these; without it, every public address can be reached."""

    hosts: Sequence[str] | None = None


@asynccontextmanager
async def offered_tools(
    run: ExecOptions | None = None, fetch: FetchOptions | None = None
) -> AsyncGenerator[ToolRegistry]:
    """Yield the built-in tools and those enabled. Raise `SandboxUnavailable` if one cannot work here."""
    registry = builtin_registry()
    if fetch is not None:
        from codesdk.tools.fetch import fetch_tool  # imported only if enabled

        registry.add(fetch_tool(hosts=fetch.hosts))
    if run is None:
        yield registry
        return
    from codesdk.tools.exec import exec_tool

    sandbox = open_sandbox(run.sandbox, **run.sandbox_options)
    try:
        registry.add(
            await exec_tool(
                sandbox, allow=run.allow, limits=run.limits, hosts=run.hosts, writable=run.writable
            )
        )
        yield registry
    finally:
        await sandbox.close()
