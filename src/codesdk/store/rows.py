"""Encodes row structs as stored JSON and decodes them. All stores use this form, so all return the same rows.

Written strictly, read leniently: fields that a newer version added are ignored.
"""

from typing import TypeVar

import msgspec

from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.contract.jobs import JobRow
from codesdk.contract.records import (
    ApprovalRow,
    ArtifactRow,
    Changes,
    KeyRow,
    MessageRow,
    SessionRow,
    TaskRow,
)

Row = SessionRow | TaskRow | MessageRow | ApprovalRow | ArtifactRow | KeyRow | JobRow
R = TypeVar("R", SessionRow, TaskRow, MessageRow, ApprovalRow, ArtifactRow, KeyRow, JobRow)

_encoder = msgspec.json.Encoder()
_decoders: dict[type[Row], msgspec.json.Decoder[Row]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (SessionRow, TaskRow, MessageRow, ApprovalRow, ArtifactRow, KeyRow, JobRow)
}


def pack(row: Row) -> bytes:
    """Return the stored form of a row. Raise `InvalidRequest` if it holds something that JSON cannot."""
    try:
        return _encoder.encode(row)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"A {type(row).__name__} cannot be stored as JSON: {error}. Leave out what is not JSON."
        ) from error


def unpack(kind: type[R], data: bytes) -> R:
    """Return the row of a stored form. Raise `StorageFailure` if it is damaged."""
    try:
        row = _decoders[kind].decode(data)
    except ValueError as error:
        raise StorageFailure(
            f"A stored {kind.__name__} is damaged and cannot be read: {error}. Restore it from a backup."
        ) from error
    assert isinstance(row, kind)
    return row


def is_pending(row: SessionRow) -> bool:
    """Return whether a session has work that a crash would interrupt, or that the next start takes up by itself."""
    return row.active_task_id is not None or row.queued > 0 or row.goes_on


class PackedChanges(msgspec.Struct, kw_only=True):
    """`Changes` with every row in its stored form, next to the values that tables are keyed by."""

    session: tuple[SessionRow, bytes] | None
    snapshot: bytes | None
    tasks: list[tuple[TaskRow, bytes]]
    messages: list[tuple[MessageRow, bytes]]
    approvals: list[tuple[ApprovalRow, bytes]]
    artifacts: list[tuple[ArtifactRow, bytes]]
    keys: list[tuple[KeyRow, bytes]]


def pack_changes(changes: Changes) -> PackedChanges:
    """Pack every row, before anything is written."""
    return PackedChanges(
        session=None if changes.session is None else (changes.session, pack(changes.session)),
        snapshot=changes.snapshot,
        tasks=[(row, pack(row)) for row in changes.tasks],
        messages=[(row, pack(row)) for row in changes.messages],
        approvals=[(row, pack(row)) for row in changes.approvals],
        artifacts=[(row, pack(row)) for row in changes.artifacts],
        keys=[(row, pack(row)) for row in changes.keys],
    )
