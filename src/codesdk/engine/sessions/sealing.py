"""Seals equipment beside the log and reads it back; also what a session in memory holds of it.

The log only names the kinds of equipment that a session has (`sealed`), so that what is missing can be said.
"""

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec

from codesdk.contract.actions import Equipment
from codesdk.contract.errors import Conflict, InvalidRequest, StorageFailure
from codesdk.contract.ports import EquipmentStore, EventLog

_NAMES = (*Equipment.__struct_fields__, "equipment")
_HASH_BYTES = hashlib.sha256().digest_size


class Held(msgspec.Struct, eq=False):
    """The equipment of a session in memory."""

    equipment: Equipment
    missing: list[str]
    """What the log names and the seal does not hold."""
    given: bool
    """Whether its servers and what it plays were attached since it was loaded."""
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def require(self, session_id: str) -> None:
        """Raise `Conflict` if something is missing: without its secrets a session would store them."""
        if self.missing:
            raise Conflict(
                f"What session {session_id} was equipped with is missing or damaged: {', '.join(self.missing)}."
                " It is not in the log. Equip the session with it again, then continue.",
                details={"equipment_missing": self.missing},
            )

    def hold(self, equipment: Equipment, sealed: Sequence[str]) -> None:
        """Hold other equipment. `sealed` is what the log names."""
        self.equipment = equipment
        # A name that is no kind is a redacted one: somebody has the word `secrets` for a secret.
        self.missing = [kind for kind in sealed if kind in _NAMES and kind not in equipment.kinds]


async def seal(store: EquipmentStore, session_id: str, equipment: Equipment) -> None:
    """Store a session's equipment durably; most sessions have none."""
    if not equipment.kinds:
        return
    try:
        body = msgspec.msgpack.encode(equipment)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"The equipment cannot be stored: {type(error).__name__}.") from None
    await store.save(session_id, _hash(session_id, body) + body)


async def unseal(store: EquipmentStore, session_id: str) -> Equipment:
    """Return a session's equipment, empty if none is kept. Raise `StorageFailure` if it is damaged."""
    data = await store.load(session_id)
    if data is None:
        return Equipment()
    body = data[_HASH_BYTES:]
    # A flipped bit in a secret would otherwise go unnoticed until the secret is in the log.
    if data[:_HASH_BYTES] != _hash(session_id, body):
        raise StorageFailure(f"The sealed equipment of session {session_id} is damaged. Equip it again.")
    return msgspec.msgpack.decode(body, type=Equipment)


async def hold(store: EquipmentStore, session_id: str, sealed: Sequence[str]) -> Held:
    """Return what a stored session was equipped with. Damage is no error here: everything is missing then."""
    held = Held(Equipment(), [], given=False)
    try:
        held.hold(await unseal(store, session_id), sealed)
    except StorageFailure:
        held.hold(Equipment(), sealed or ("equipment",))
    return held


async def sweep(store: EquipmentStore, log: EventLog) -> None:
    """Remove the equipment of sessions that are not stored.

    A crash may come before a session's first event, or between its deletion and that of its equipment.
    """
    for session_id in await store.sessions():
        if await log.session(session_id) is None:
            await store.forget(session_id)


def _hash(session_id: str, body: bytes) -> bytes:
    """Return the hash that a seal begins with. It covers the name, too, so that files cannot be exchanged."""
    return hashlib.sha256(session_id.encode() + b"\0" + body).digest()
