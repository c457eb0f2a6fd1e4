"""The operator's options for tools beyond those on files → a registry with these tools, ready to use."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.validation import checked
from codesdk.sandbox import SandboxKind, SandboxLimits, check_hosts, check_options, open_configured
from codesdk.tools.builtin import builtin_registry
from codesdk.tools.registry import ToolRegistry


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

    def check(self) -> None:
        """Raise `InvalidRequest` for what is not as expected, before any sandbox is opened."""
        from codesdk.tools.exec import check_allowed

        if isinstance(self.allow, str | list | tuple):
            check_allowed(self.allow)  # first: its words name the mistake
        options = cast("object", self.sandbox_options)
        if not isinstance(options, dict):
            raise InvalidRequest(
                f"Invalid argument: sandbox_options: expected options by name, got `{type(options).__name__}`."
            )
        checked(
            msgspec.structs.replace(self, sandbox_options={})
        )  # which may be objects, and are not JSON then
        check_options(self.sandbox, self.sandbox_options)
        if self.hosts:
            check_hosts(self.hosts)


class FetchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Enables `http.fetch`. `hosts` limits it to these; without it, every public address can be reached."""

    hosts: Sequence[str] | None = None

    def check(self) -> None:
        """Raise `InvalidRequest` for what is not as expected."""
        checked(self)
        if self.hosts:
            check_hosts(self.hosts)


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

    sandbox = open_configured(run.sandbox, run.sandbox_options)
    try:
        registry.add(
            await exec_tool(
                sandbox, allow=run.allow, limits=run.limits, hosts=run.hosts, writable=run.writable
            )
        )
        yield registry
    finally:
        await sandbox.close()
