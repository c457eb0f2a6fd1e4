"""The time in the contract's form, for what the store itself writes."""

from datetime import UTC, datetime


def now() -> str:
    """Return the time as UTC ISO-8601 with milliseconds and `Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
