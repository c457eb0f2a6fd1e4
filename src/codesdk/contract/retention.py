"""How long and how much is kept, and the report of what was removed. Client and daemon share these types."""

from collections.abc import Callable
from typing import Literal

import msgspec

from codesdk.contract.bounds import Bytes, Days
from codesdk.contract.tools import Record

Progress = Callable[[int, int], None]
"""Called with how many of how many sessions are removed."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long, and how much. None means without a limit."""

    max_age_days: Days | None = None
    """Since a session was last used, or a file was uploaded."""
    max_total_bytes: Bytes | None = None
    """Of all that is stored but the audit."""
    undo_max_age_days: Days | None = None
    undo_max_bytes: Bytes | None = None
    audit_max_age_days: Days | None = None
    audit_max_bytes: Bytes | None = None


class Removed(Record, frozen=True, kw_only=True):
    """A session that was removed, or would be."""

    session_id: str
    principal: str
    updated_at: str
    bytes: int
    why: Literal["age", "size"]


class Kept(Record, frozen=True, kw_only=True):
    """A session that should have been removed, and why it was not."""

    session_id: str
    reason: str


class GcReport(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a collection did; for a dry run, what it would do, with sizes from before."""

    dry_run: bool
    sessions: list[Removed]
    kept: list[Kept]
    uploads: int
    """Files that were uploaded to be attached; sessions keep what they were given."""
    upload_bytes: int
    undo_files: int
    undo_bytes: int
    blobs: int
    audit_segments: list[str]
    bytes_before: int
    bytes_after: int
    unused_bytes: int
    """What the database file holds beyond its content."""
