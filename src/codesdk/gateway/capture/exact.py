"""A request's body ↔ its parts by hash, so that a long session does not store its history every turn.

`Splitter` redacts and hashes what it has not seen before; it runs in a thread, one request of a session at a time.
`join` rebuilds the body, for replay.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from codesdk.contract.canonical import CanonicalError, canonical, content_hash
from codesdk.contract.models import ExactPart
from codesdk.gateway.wires.exchange import Wire
from codesdk.gateway.wires.fields import items, mapping
from codesdk.redaction import Redactor

_MESSAGES: dict[Wire, str] = {
    "anthropic": "messages",
    "responses": "input",
    "chat": "messages",
    "gemini": "contents",
}
# Large fields that rarely change between turns, so that storing them by hash pays.
_APART = ("system", "instructions", "systemInstruction", "system_instruction", "tools", "functions")
_KNOWN = 50_000

Parts = dict[str, ExactPart | list[ExactPart]]


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A body in parts. `digests` are what `Splitter.kept` remembers once the parts are stored."""

    fields: dict[str, Any]
    parts: Parts
    digests: dict[bytes, str]
    message_bytes: int


class Splitter:
    """Splits the requests of one session. A part seen before costs only a digest."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._redactor: Redactor | None = None

    def split(self, wire: Wire, body: bytes, redactor: Redactor) -> Split:
        """Return a body in redacted parts. A part that was `kept` before has no data."""
        if redactor is not self._redactor:  # new secrets: known parts may be redacted differently now
            self._redactor, self._known = redactor, {}
        whole = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        digests: dict[bytes, str] = {}
        parts: Parts = {}
        fields: dict[str, Any] = {}
        message_bytes = 0
        for name, raw in whole.items():
            if name == _MESSAGES[wire] and bytes(raw).lstrip()[:1] == b"[":
                message_bytes = len(bytes(raw))
                items = msgspec.json.decode(raw, type=list[msgspec.Raw])
                parts[name] = [self._part(bytes(item), digests) for item in items]
            elif name in _APART:
                parts[name] = self._part(bytes(raw), digests)
            else:
                fields[name] = msgspec.json.decode(raw)
        return Split(fields=redactor.value(fields), parts=parts, digests=digests, message_bytes=message_bytes)

    def kept(self, split: Split) -> None:
        """Remember parts that have been stored."""
        # Forgetting is harmless: a part is only stored once more under the same hash.
        if len(self._known) > _KNOWN:
            self._known = {}
        self._known.update(split.digests)

    def _part(self, raw: bytes, digests: dict[bytes, str]) -> ExactPart:
        # A digest of the raw bytes decides: redacting and encoding a known part again would cost far more.
        digest = hashlib.blake2b(raw, digest_size=20).digest()
        known = self._known.get(digest)
        if known is not None:
            return ExactPart(known, None)
        assert self._redactor is not None, "a redactor comes with every request"
        data = _bytes(self._redactor.value(msgspec.json.decode(raw)))
        digests[digest] = content_hash(data)
        return ExactPart(digests[digest], data)


def join(document: Mapping[str, Any], read: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the body of a stored request. `read` has the bytes of its parts by hash."""
    body = dict(mapping(document.get("fields")))
    for name, part in mapping(document.get("parts")).items():
        if isinstance(part, str):
            body[name] = msgspec.json.decode(read[part])
        else:
            body[name] = [msgspec.json.decode(read[one]) for one in items(part)]
    return body


def hashes_of(document: Mapping[str, Any]) -> list[str]:
    """Return the hashes of the parts of a stored request."""
    parts = mapping(document.get("parts")).values()
    return [one for part in parts for one in ([part] if isinstance(part, str) else items(part))]


def _bytes(value: Any) -> bytes:
    try:
        return canonical(value)
    except CanonicalError:  # such as a huge integer, which providers accept nevertheless
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass")
