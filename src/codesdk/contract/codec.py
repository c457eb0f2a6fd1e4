"""Events to bytes and back: one encode per event, a strict writer, a lenient reader.

`decode` accepts event types it does not know and shapes of older schema
versions, which the upcasters turn into the latest one in memory.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from codesdk.contract.events import EVENT_TYPES, SCHEMA_VERSION, Event, RuntimeInfo, Trace
from codesdk.contract.tools import Record

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: dict[int, Upcaster] = {}
"""From a schema version to the next: a function on the whole event as a JSON object."""


class _Envelope(Record, frozen=True, kw_only=True):
    schema_version: int
    seq: int
    time: str
    type: str
    trace: Trace
    runtime: RuntimeInfo
    payload: msgspec.Raw


_encoder = msgspec.json.Encoder()
_envelope = msgspec.json.Decoder(_Envelope)
_payloads = {name: msgspec.json.Decoder(payload) for name, payload in EVENT_TYPES.items()}


def encode(event: Event) -> bytes:
    """Return the stored form of an event: one line of JSON without a line end."""
    return _encoder.encode(event)


DELTA = b'.output.delta"'
TYPE_WITHIN = 160
"""Where the type of an event must stand in its frame: everything before it is short."""


def is_delta(frame: bytes) -> bool:
    """Return whether a frame is a delta, without decoding it."""
    return DELTA in frame[:TYPE_WITHIN]


def decode(frame: bytes) -> Event:
    """Return the event of a stored frame. Raise `ValueError` if it is not one."""
    try:
        return _decode(frame)
    except RecursionError:
        raise ValueError("the event is nested too deeply") from None


def _decode(frame: bytes) -> Event:
    envelope = _envelope_of(frame)
    payload = _payloads.get(envelope.type)
    newer = envelope.schema_version > SCHEMA_VERSION
    return Event(
        schema_version=envelope.schema_version,
        seq=envelope.seq,
        time=envelope.time,
        type=envelope.type,
        trace=envelope.trace,
        runtime=envelope.runtime,
        payload=msgspec.json.decode(envelope.payload)
        if payload is None or newer
        else payload.decode(envelope.payload),
    )


def _envelope_of(frame: bytes) -> _Envelope:
    """Read the envelope; one of an older version is brought up first, since its very shape may differ."""
    try:
        envelope = _envelope.decode(frame)
    except msgspec.ValidationError:
        envelope = None
    if envelope is not None and envelope.schema_version >= SCHEMA_VERSION:
        return envelope
    event = msgspec.json.decode(frame)
    version = cast("dict[str, Any]", event).get("schema_version") if isinstance(event, dict) else None
    if isinstance(version, int) and version < SCHEMA_VERSION:
        frame = msgspec.json.encode(upcast(cast("dict[str, Any]", event)))
    return _envelope.decode(frame)


def upcast(
    event: dict[str, Any], upcasters: Mapping[int, Upcaster] = UPCASTERS, to: int = SCHEMA_VERSION
) -> dict[str, Any]:
    """Bring an event of an older schema version to version `to`, one step at a time."""
    version = int(event["schema_version"])
    while version < to:
        step = upcasters.get(version)
        if step is None:
            raise ValueError(f"no upcaster from schema version {version} to {version + 1}")
        event = step(event)
        version += 1
        event["schema_version"] = version
    return event
