"""What a command works on: the sessions of a daemon, or those of a data directory of this machine.

`open_reader` reads, beside whoever runs the sessions. `open_sdk` acts: through that process, or, if there is
none, as the holder of the directory while the command runs.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codesdk.cli.app import Setup
from codesdk.contract.service import SessionReader

if TYPE_CHECKING:
    from codesdk.cli.settings.resolved import Resolved
    from codesdk.client import CodeSDKClient
    from codesdk.engine import Archive
    from codesdk.sdk import CodeSDK

Runner = Literal["daemon", "process", "nobody"]
"""Who runs the sessions that a command works on: a daemon, another process, or nobody yet."""


@asynccontextmanager
async def open_reader(setup: Setup) -> AsyncGenerator[SessionReader]:
    """Yield the sessions that the options name, for reading: a daemon's, else those of the data directory."""
    if setup.url is None:
        async with reading(setup.data_dir) as archive:
            yield archive
        return
    async with connected(setup) as client:
        yield client.daemon


@asynccontextmanager
async def reading(data_dir: str) -> "AsyncGenerator[Archive]":
    """Open a data directory for reading."""
    from codesdk.engine import Archive
    from codesdk.local import DataDir

    directory = await DataDir.open_reader(Path(data_dir))
    try:
        yield Archive(directory.log, directory.blobs)
    finally:
        await directory.close()


async def runner(setup: Setup) -> Runner:
    """Return who runs the sessions."""
    if served(setup):
        return "daemon"
    from codesdk.local import is_held

    return "process" if await is_held(Path(setup.data_dir)) else "nobody"


@asynccontextmanager
async def open_sdk(setup: Setup, *, runs: bool = False) -> "AsyncGenerator[CodeSDK | CodeSDKClient]":
    """Yield the sessions that the options name, to work on: through a daemon or holder, or as the holder.

    A command that `runs` tasks has the operator's executables and logins. Others do not start them for nothing.
    """
    if served(setup):
        async with connected(setup) as client:
            yield client
        return
    from codesdk.contract.actions import Caller
    from codesdk.contract.tools import Actor
    from codesdk.sdk import CodeSDK

    # A command ends soon, and would only interrupt again what goes on by itself.
    operators: dict[str, Any] = {}
    if runs and await runner(setup) == "nobody":
        from codesdk.cli.target.runtimes import RuntimesHere

        operators = RuntimesHere.of_command().opening()
    async with CodeSDK.open(setup.data_dir, goes_on=False, **operators) as sdk:
        yield sdk.as_caller(Caller(actor=Actor(kind="user", id="terminal")))


@asynccontextmanager
async def open_shared(setup: Setup, rules: "Resolved") -> "AsyncGenerator[CodeSDK]":
    """Open the data directory, as its holder by the rules of this process, or through whoever holds it."""
    from codesdk.cli.settings.use import opening
    from codesdk.cli.target.runtimes import RuntimesHere
    from codesdk.contract.errors import Conflict
    from codesdk.sdk import CodeSDK

    if await runner(setup) == "nobody":
        holding = CodeSDK.open(
            setup.data_dir,
            allow_yolo=rules["allow_yolo"],
            **(opening(rules) | RuntimesHere.of_command().opening()),
            share=False,
            # An editor or a chat may be opened long after it was closed: what was interrupted then waits for a person.
            goes_on=False,
        )
        try:
            sdk = await holding.__aenter__()
        except Conflict:
            pass  # somebody was faster
        else:
            try:
                yield sdk
            finally:
                await holding.__aexit__(None, None, None)
            return
    async with CodeSDK.open(setup.data_dir, goes_on=False) as sdk:
        yield sdk


@asynccontextmanager
async def connected(setup: Setup) -> "AsyncGenerator[CodeSDKClient]":
    """Connect to the daemon that the options name, or to the one that holds the data directory."""
    from codesdk.client import CodeSDKClient

    async with CodeSDKClient.connect(setup.url, setup.token, None if setup.url else setup.data_dir) as client:
        yield client


def served(setup: Setup) -> bool:
    """Return whether work goes through a daemon: one that is named, or one that holds the data directory."""
    from codesdk.local import find_daemon

    return setup.url is not None or find_daemon(Path(setup.data_dir)) is not None
