"""The arguments of what only reads or uploads, each with one meaning everywhere: checked before anything is looked up.

Actions are structs and are checked as such (`validation.checked`); these are not sent anywhere as a whole.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from codesdk.contract.bounds import Bytes, Count, Number, Seconds
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ids import is_id
from codesdk.contract.jobs import JobState
from codesdk.contract.records import SessionStatus
from codesdk.contract.validation import check_key, checked, read_as

_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, by name."""

    session_id: str | UnsetType = UNSET
    task_id: str | UnsetType = UNSET
    artifact_id: str | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    state: JobState | UnsetType | None = UNSET
    job_type: str | UnsetType | None = UNSET
    after: str | UnsetType | None = UNSET
    limit: Number | UnsetType = UNSET
    status: SessionStatus | UnsetType | None = UNSET
    seq: Count | UnsetType = UNSET
    after_seq: Count | UnsetType = UNSET
    start: Bytes | UnsetType = UNSET
    end: Bytes | UnsetType | None = UNSET
    max_bytes: Bytes | UnsetType | None = UNSET
    content_type: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    runtime: str | UnsetType = UNSET
    url: str | UnsetType | None = UNSET
    token: str | UnsetType | None = UNSET
    login_id: str | UnsetType = UNSET
    timeout_s: Seconds | UnsetType = UNSET
    wait_s: Seconds | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    rewrite: bool | UnsetType = UNSET


def check_arguments(**given: Any) -> None:
    """Raise `InvalidRequest`, naming the argument, for an invalid value."""
    checked(Arguments(**given))


def texts(given: object, name: str) -> list[str]:
    """Return texts that are given in any order as a list. One text is not a list of its characters, nor a map of its keys."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        kind = type(cast("object", given)).__name__
        raise InvalidRequest(f"Invalid argument: {name}: expected a list, got `{kind}`.")
    return read_as(list[str], list(cast("Iterable[object]", given)), name)


def path_text(given: object, name: str) -> str:
    """Return a path as text. Raise `InvalidRequest` for anything else, such as bytes."""
    found: object = os.fspath(cast("os.PathLike[Any]", given)) if isinstance(given, os.PathLike) else given
    if not isinstance(found, str) or "\0" in found:
        raise InvalidRequest(f"Invalid argument: {name}: expected a path, got `{type(found).__name__}`.")
    return found


def check_principal(name: object) -> None:
    """Raise `InvalidRequest` if a principal cannot have this name."""
    if not isinstance(name, str) or not _PRINCIPAL.fullmatch(name):
        raise InvalidRequest(
            "The name of a principal has 1 to 64 letters, digits, _ . @ or -, and begins with a letter or a digit."
        )
    if is_id("ses", name):  # uploads are kept under this name, a session's artifacts under its id
        raise InvalidRequest(f"The principal {name} looks like a session's id. Choose another name.")


def check_upload(data: object, content_type: object, name: object, key: object) -> None:
    """Raise `InvalidRequest` for what cannot be stored as an artifact."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidRequest(f"Invalid argument: data: expected `bytes`, got `{type(data).__name__}`.")
    check_arguments(content_type=content_type, name=name)
    check_key(key)
