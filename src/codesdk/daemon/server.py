"""The process: open a data directory, bind a socket, serve requests until a signal comes.

The first line on stdout is the daemon's address. SIGTERM drains: no new task starts, running ones have a
grace period and are then stopped, and clients get the last events before their connections close.
"""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import resource
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.bounds import check_bounds
from codesdk.contract.errors import CodeSDKError, Conflict, InvalidRequest
from codesdk.contract.ports import Observer
from codesdk.contract.retention import Retention
from codesdk.daemon.app import App
from codesdk.daemon.auth import LOOPBACK, Guard
from codesdk.daemon.settings import DaemonSettings
from codesdk.daemon.sockets import Upgrade
from codesdk.local import TokenFile, announce
from codesdk.observe import Metrics
from codesdk.sdk import CodeSDK
from codesdk.serving import Limits, Serving, capacity, listen as listen_on

_log = logging.getLogger(__name__)

COLLECT_S = 3600.0
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""How long a message over a WebSocket may be."""
FAREWELL_S = 2
"""How long clients may take to read the last events when the daemon ends."""


async def serve(
    data_dir: Path,
    settings: DaemonSettings,
    opening: Mapping[str, Any],
    observers: Sequence[Observer] = (),
    upgrades: Mapping[str, Upgrade] | None = None,
) -> None:
    """Run the daemon until it is told to stop. `opening` holds further options of `CodeSDK.open`.

    `upgrades` serve WebSockets, by path.
    """
    settings = msgspec.structs.replace(settings, data_dir=data_dir)
    check_bounds(settings)
    _allow_many_files()
    metrics = Metrics()
    tokens = TokenFile(data_dir)
    guard = Guard(tokens, hosts=[settings.host, *settings.allow_hosts], always=settings.require_token)
    _require_auth(settings, guard)
    listener = listen(settings.host, settings.port)
    try:
        async with CodeSDK.open(
            data_dir,
            secrets=[guard.local_token],
            observers=[metrics, *observers],
            permits=settings.permits,
            **opening,
        ) as sdk:
            metrics.watch(sdk.engine, sdk.extensions if opening.get("extensions") else None)
            app = App(sdk, guard, settings, metrics, upgrades)
            async with serving(app, listener, connection_limits(settings)) as url:
                told = _signals()  # before anybody knows where we are: a signal must not be missed
                gc.freeze()  # what is there now stays: full collections need not walk it, and pause everybody less
                gc.enable()
                announce(data_dir, url=url, token=guard.local_token)
                _say_where(url)
                await _run(sdk, app, settings, told)
    finally:
        listener.close()


async def _run(sdk: CodeSDK, app: App, settings: DaemonSettings, told: asyncio.Queue[int]) -> None:
    """Wait for a signal, then for the tasks. A second signal ends the wait."""
    collecting = asyncio.create_task(_collect(sdk, settings.retention)) if settings.retention else None
    await told.get()
    if collecting is not None:
        collecting.cancel()
    app.draining = True
    draining = asyncio.create_task(sdk.engine.drain(settings.grace_s))
    hurry = asyncio.create_task(told.get())
    await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
    for waiting in (draining, hurry):
        waiting.cancel()
    await sdk.engine.close("the daemon is shutting down")


async def _collect(sdk: CodeSDK, retention: Retention) -> None:
    """Remove what is over the limits, at start-up and then every hour."""
    while True:
        try:
            report = await sdk.collect(retention)
            if report.sessions:
                _log.info("Retention removed %d sessions.", len(report.sessions))
        except CodeSDKError as error:  # the daemon goes on; the next round tries again
            _log.error("Retention failed: %s", error.message)
        await asyncio.sleep(COLLECT_S)


@asynccontextmanager
async def serving(app: App, listener: socket.socket, limits: Limits | None = None) -> AsyncGenerator[str]:
    """Serve an application on a socket. Yield its address; on exit, let streams end."""
    server = Serving(app, listener, grace_s=FAREWELL_S, limits=limits, max_frame_bytes=MAX_FRAME_BYTES)
    host, port = listener.getsockname()[:2]
    try:
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await server.end()


def connection_limits(settings: DaemonSettings) -> Limits:
    """Return what clients may take: without a setting, no address gets more than half of the connections."""
    limits = Limits(connections=settings.max_connections)
    per_peer = settings.max_connections_per_peer or max(1, capacity(limits) // 2)
    return msgspec.structs.replace(limits, per_peer=per_peer)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host's address."""
    # As bytes where that says the same: for a text, Python loads its tables of Unicode.
    name = host.encode() if host.isascii() else host
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidRequest(f"The host {host} has no address: {error.strerror}.") from error
    try:
        return listen_on(address, family)
    except OSError as error:
        raise Conflict(
            f"The daemon cannot listen on {host}, port {port}: {error.strerror}. Choose another port,"
            " or 0 for any that is free.",
            details={"port": port},
        ) from error


def _require_auth(settings: DaemonSettings, guard: Guard) -> None:
    """Refuse to be reachable from other machines without tokens."""
    if _is_loopback(settings.host) or guard.needs_token:
        return
    raise InvalidRequest(
        f"The address {settings.host} can be reached from other machines, but no token is required yet."
        " Make one with `codesdk tokens add`, or use 127.0.0.1."
    )


def _is_loopback(host: str) -> bool:
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _allow_many_files() -> None:
    """Raise the limit of open files as far as allowed: every client takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _say_where(url: str) -> None:
    sys.stdout.write(msgspec.json.encode({"url": url}).decode() + "\n")
    sys.stdout.flush()


def _signals() -> asyncio.Queue[int]:
    told: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.put_nowait, number)
    return told
