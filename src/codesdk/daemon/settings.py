"""The settings of a daemon, as its operator gives them."""

from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.bounds import Bytes, Interval, Number, Port, Rate, Seconds
from codesdk.contract.retention import Retention
from codesdk.engine import Permits


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and permissions of one daemon."""

    data_dir: Path | None = None
    host: str = "127.0.0.1"
    port: Port = 0
    grace_s: Seconds = 10.0
    """How long running tasks may keep running after the daemon was told to stop."""
    permits: Permits = Permits()
    """What sessions may use."""
    allow_hosts: tuple[str, ...] = ()
    """Names by which clients reach the daemon, besides loopback and the address it is bound to."""
    require_token: bool = False
    max_body_bytes: Bytes = 8 * 1024 * 1024
    requests_per_s: Rate | None = 500.0
    """How many requests a principal may make; None for no limit."""
    request_burst: Number = 2_000
    tasks_per_minute: Rate | None = None
    """How many tasks of one runtime a principal may start; None for no limit."""
    max_connections: Number = 10_000
    """How many connections may be open, if there are descriptors for them."""
    max_connections_per_peer: Number | None = None
    """How many of them one address may have; None for half of all."""
    heartbeat_s: Interval = 15.0
    retention: Retention | None = None
    """What to keep, enforced at start-up and every hour; None to keep everything."""


def launch_settings(settings: DaemonSettings) -> dict[str, Any]:
    """Return what a daemon was started with, as a support bundle shows it: all but where its data is."""
    shown: dict[str, Any] = msgspec.structs.asdict(settings)
    del shown["data_dir"]
    return shown
