"""Ids: a prefix and a ULID, written in lower case so that they sort by time as text.

The engine mints all ids except two kinds: a client may choose its own `task_id`, and an artifact's id follows
from its session and content (`artifact_id`), so that replaying a session gives the same ids without a lookup.
"""

import hashlib
import re
from typing import Literal

Prefix = Literal["ses", "task", "call", "art", "req", "apr", "job", "sug"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_CLIENT_TASK_ID = re.compile(r"task_[0-9A-Za-z_-]{1,64}")
_ULID = re.compile(f"[0-7][{_ALPHABET}]{{25}}")


def ulid(time_ms: int, random: int) -> str:
    """Return the 26 characters of a ULID made of 48 bits of time and 80 random bits."""
    value = (time_ms << 80) | random  # 128 bits in 130: the first character is at most 7
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def is_id(prefix: Prefix, value: str) -> bool:
    """Return whether `value` is an id of this kind as the engine mints them."""
    head, _, tail = value.partition("_")
    return head == prefix and _ULID.fullmatch(tail) is not None


def is_task_id(value: str) -> bool:
    """Return whether a client may use `value` as a task id."""
    return _CLIENT_TASK_ID.fullmatch(value) is not None


def artifact_id(scope: str, content_hash: str, content_type: str, name: str | None) -> str:
    """Return the id of this content in a session: the session's time, then 80 bits of a digest.

    The same content put twice in one session has one id; in another session it has another.
    """
    _, _, tail = scope.partition("_")
    time_part = tail[:10] if _ULID.fullmatch(tail) else "0" * 10
    key = "\0".join((scope, content_hash, content_type, name or "")).encode()
    digest = int.from_bytes(hashlib.sha256(key).digest()[:10], "big")
    return f"art_{time_part}{ulid(0, digest)[10:]}"
