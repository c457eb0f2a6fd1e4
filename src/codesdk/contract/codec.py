"""Encodes events as bytes and decodes them: one encode per event, a strict writer, a lenient reader.

`decode` accepts unknown event types, and events of older schema versions, which the upcasters turn into the
latest one in memory.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from codesdk.contract.events import EVENT_TYPES, SCHEMA_VERSION, Event, KnownEvent, UnknownEvent
from codesdk.contract.tools import Record

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: dict[int, Upcaster] = {}
"""From a schema version to the next: a function on the whole event as a JSON object."""


class _Head(Record, frozen=True, kw_only=True):
    schema_version: int
    type: str = ""


class _Place(Record, frozen=True, kw_only=True):
    seq: int
    type: str


_encoder = msgspec.json.Encoder()
_unknown = msgspec.json.Decoder(UnknownEvent)
_head = msgspec.json.Decoder(_Head)
_place = msgspec.json.Decoder(_Place)


@functools.cache
def _known() -> msgspec.json.Decoder[KnownEvent]:
    """Return what reads events. Made with the first one: it knows every type of them, and that takes a while."""
    return msgspec.json.Decoder(KnownEvent)


def encode(event: Event) -> bytes:
    """Return the stored form of an event: one line of JSON without a line end."""
    return _encoder.encode(event)


DELTAS = (b'{"type":"model.output.delta"', b'{"type":"tool.output.delta"')
"""How the frames of deltas begin."""


def is_delta(frame: bytes) -> bool:
    """Return whether a frame is a delta, without decoding it: its type is the first thing in it."""
    return frame.startswith(DELTAS)


def place_of(frame: bytes | msgspec.Raw) -> tuple[int, str]:
    """Return the seq and the type of a frame, without decoding the rest."""
    found = _place.decode(frame)
    return found.seq, found.type


def decode(frame: bytes) -> Event:
    """Return the event of a stored frame. Raise `ValueError` if it is not one.

    Only an unknown type or a newer schema version makes an `UnknownEvent`: a known type with a payload that
    does not fit is damage.
    """
    try:
        try:
            event = _known().decode(frame)
        except msgspec.ValidationError:
            return _decode_other(frame)
        return event if event.schema_version == SCHEMA_VERSION else _decode_other(frame)
    except RecursionError:
        raise ValueError("the event is nested too deeply") from None


def _decode_other(frame: bytes) -> Event:
    """Read an event of another version or of an unknown type, or raise what is wrong with the frame."""
    head = _head.decode(frame)
    if head.schema_version < SCHEMA_VERSION:
        # An older event is upcast as a whole, since even the shape of its envelope may differ.
        frame = msgspec.json.encode(upcast(msgspec.json.decode(frame)))
        head = _head.decode(frame)
    if head.schema_version > SCHEMA_VERSION or head.type not in EVENT_TYPES:
        return _unknown.decode(frame)
    return _known().decode(frame)


def upcast(
    event: dict[str, Any], upcasters: Mapping[int, Upcaster] = UPCASTERS, to: int = SCHEMA_VERSION
) -> dict[str, Any]:
    """Upcast an event of an older schema version to version `to`, one step at a time."""
    version = int(event["schema_version"])
    while version < to:
        step = upcasters.get(version)
        if step is None:
            raise ValueError(f"no upcaster from schema version {version} to {version + 1}")
        event = step(event)
        version += 1
        event["schema_version"] = version
    return event
