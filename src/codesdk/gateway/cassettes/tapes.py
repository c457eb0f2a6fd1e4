"""A stored session → the cassette of its recorded exchanges, each with its exact request."""

from typing import Any, Protocol

import msgspec

from codesdk.contract.codec import decode
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import ArtifactCreated
from codesdk.contract.ports import Blobs, EventLog
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.gateway.cassettes.cassette import Exchange

_PAGE = 500


class Stored(Protocol):
    """A readable log and its artifacts."""

    log: EventLog
    blobs: Blobs


async def session_cassette(stored: Stored, session_id: str) -> list[Exchange]:
    """Return a session's recorded exchanges in the order in which they ended.

    Raise `InvalidRequest` if there are none.
    """
    exchanges: list[Exchange] = []
    after = 0
    while frames := await stored.log.read(session_id, after, _PAGE):
        for frame in frames:
            after = frame.seq
            # A damaged frame is skipped: the other exchanges can still be played.
            payload: object = None if frame.damage is not None else decode(frame.data).payload
            if isinstance(payload, ArtifactCreated) and payload.reason == "exchange":
                exchanges.append(await _read(stored.blobs, payload.artifact.content_hash))
    if not exchanges:
        raise InvalidRequest(
            f"Session {session_id} has no recorded exchanges. Only a session whose model requests passed the gateway"
            " in the mode record can be played again."
        )
    return exchanges


async def _read(blobs: Blobs, content_hash: str) -> Exchange:
    plain: dict[str, Any] = msgspec.json.decode(await blobs.get(content_hash))
    for field in ("request", "sent"):
        reference = plain.pop(f"{field}_ref", None)
        if reference is not None:
            document = msgspec.json.decode(await blobs.get(reference))
            plain[field] = join(document, {name: await blobs.get(name) for name in hashes_of(document)})
    return msgspec.convert(plain, type=Exchange)
