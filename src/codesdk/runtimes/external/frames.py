"""The frames of JSON-RPC 2.0, in lines: what is common to all messages, and errors on their way over the wire."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.runtime import HistoryLost
from codesdk.foreign import name_of
from codesdk.runtimes.external.messages import (
    HISTORY_LOST,
    INTERNAL_ERROR,
    KNOWN_ERROR,
    METHOD_NOT_FOUND,
)

Version = Literal["2.0"]
_NO_PARAMS = Raw(b"{}")


class RpcError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, as an answer has it."""

    code: int
    message: str
    data: Any = None


class Frame(msgspec.Struct, frozen=True):
    """Any message, as it comes in. What it carries is decoded when its method is known."""

    jsonrpc: Version
    method: str | None = None
    id: int | str | UnsetType | None = UNSET
    params: Raw = _NO_PARAMS
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A question."""

    jsonrpc: Version = "2.0"
    id: int
    method: str
    params: Any


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A message that gets no answer."""

    jsonrpc: Version = "2.0"
    method: str
    params: Any


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    jsonrpc: Version = "2.0"
    id: int | str | None
    result: Any


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that there is none."""

    jsonrpc: Version = "2.0"
    id: int | str | None
    error: RpcError


_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Frame).decode
"""A line → its frame. Raises `ValueError` or `RecursionError` for what is none."""
decode_error = msgspec.json.Decoder(RpcError).decode


def encode(frame: msgspec.Struct) -> bytes:
    """Return a frame as a line."""
    return _encode(frame) + b"\n"


def error_of(error: Exception) -> RpcError:
    """Return an error as it goes over the wire."""
    if isinstance(error, CodeSDKError):
        return RpcError(KNOWN_ERROR, error.message, error.info())
    if isinstance(error, HistoryLost):
        return RpcError(HISTORY_LOST, str(error))
    if isinstance(error, NotImplementedError):
        return RpcError(METHOD_NOT_FOUND, str(error) or "This adapter does not have it.")
    return RpcError(INTERNAL_ERROR, name_of(error))
