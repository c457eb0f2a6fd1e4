"""What a process that runs sessions says of itself: for a support bundle, whoever makes it."""

from typing import Any

import msgspec


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What only the process itself knows, as plain values."""

    policy: dict[str, Any]
    """The kind of policy in force, its rules and their hash."""
    launch: dict[str, Any]
    """What the process was started with: limits, permits, tools that it offers, a daemon's settings."""
    sandbox: dict[str, Any] | None = None
    """What the sandbox in which it runs commands enforces; None if it runs none."""
    health: dict[str, Any] | None = None
    """What a daemon says of its health."""
