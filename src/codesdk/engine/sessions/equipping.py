"""Equipment given to sessions: checked, sealed, named in the log, and attached.

Secrets are known from the moment a session is loaded (`registry`). Servers and what a session plays are attached when it
is created or equipped and, after a restart, when it is next given work.
"""

import msgspec

from codesdk.contract.actions import PLAYED, Equipment, check_plays
from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.contract.events import SettingsChanged
from codesdk.contract.ports import Attached, Prepared
from codesdk.contract.tools import Actor
from codesdk.engine.sessions.creation import equip
from codesdk.engine.sessions.scope import Ports
from codesdk.engine.sessions.sealing import seal
from codesdk.engine.sessions.secrets import SessionSecrets, made_ready
from codesdk.engine.sessions.session import LiveSession
from codesdk.redaction import check_secrets


class SessionEquipping:
    """Equips the sessions of one engine."""

    def __init__(self, ports: Ports, secrets: SessionSecrets) -> None:
        self._ports = ports
        self._secrets = secrets

    async def prepare(self, equipment: Equipment, principal: str) -> tuple[Equipment, Prepared | None]:
        """Check equipment before anything is written. Return it with the secrets found in it, ready to be given."""
        check_secrets(equipment.secrets)
        # An empty script is given, too, and refused where scripts are read.
        if not _attachable(equipment) and equipment.script is None and equipment.recording is None:
            return equipment, None
        if self._ports.equipper is None:
            raise InvalidRequest("Scripts, recordings and MCP servers cannot be given to sessions here.")
        prepared = await equip(self._ports.equipper.prepare, equipment, principal=principal)
        secrets = list(dict.fromkeys((*equipment.secrets, *prepared.secrets)))
        return msgspec.structs.replace(equipment, secrets=secrets), prepared

    async def attach(
        self, prepared: Prepared | None, session_id: str, *, turn: int | None = None
    ) -> Attached | None:
        """Start what was prepared for a session. Whoever does not give it to the session closes it."""
        return None if prepared is None else await equip(prepared.attach, session_id, turn=turn)

    async def give(self, live: LiveSession, attached: Attached | None) -> None:
        """Give a session that was just created what was attached for it."""
        if attached is not None:
            await live.resources.attach(attached)
        live.equipment.given = True

    async def restore(self, live: LiveSession) -> None:
        """Give a session that was loaded its servers and what it plays, before its first task."""
        held = live.equipment
        async with held.lock:
            if not held.given:
                _, prepared = await self.prepare(held.equipment, live.state.principal)
                attached = await self.attach(prepared, live.session_id, turn=live.state.turns_played)
                await self.give(live, attached)
            self._require_playing(live)

    def _require_playing(self, live: LiveSession) -> None:
        """Raise `Conflict` if a session plays something that was not sealed, and nobody has given it here."""
        mode, models = live.scope.settings.gateway, self._ports.models
        if models is None or mode not in PLAYED or models.plays(live.session_id):
            return
        missing = "script" if mode == "scripted" else "recording"
        raise Conflict(
            f"Session {live.session_id} plays {PLAYED[mode]} in place of a provider's model, which is not"
            " available: a cassette or custom model exists only in the process that received it. Open the session with"
            " it (plays), then continue.",
            details={"equipment_missing": [missing]},
        )

    async def add(self, live: LiveSession, given: Equipment, by: Actor) -> None:
        """Equip a session that exists. A task that already runs does not get new secrets or tools."""
        given, prepared = await self.prepare(given, live.state.principal)
        if prepared is not None:
            settings = live.scope.settings
            check_plays(live.session_id, settings.gateway, prepared.settings.get("gateway"))
        held = live.equipment
        async with held.lock:
            # The script that it has, given again, goes on where the session is.
            same = given.script is not None and given.script == held.equipment.script
            merged = _merge(held.equipment, given)
            check_secrets(merged.secrets)
            self._learn(live, merged)
            await made_ready(live.scope.redactor)
            # Sealed before the log names it: a crash in between leaves more than is named, never less.
            await seal(self._ports.equipment, live.session_id, merged)
            new = _attachable(given) - ({"script"} if same else set())
            await self._note(live, merged, sorted(new), by)
            given_all = held.given or _attachable(merged) <= _attachable(given)
            held.given = False  # until it is attached: if that fails, the next task tries again
            turn = live.state.turns_played if same else None
            await self.give(live, await self.attach(prepared, live.session_id, turn=turn))
            held.given = given_all

    def _learn(self, live: LiveSession, equipment: Equipment) -> None:
        known = self._secrets.of(live.session_id)
        added = [secret for secret in equipment.secrets if secret not in known]
        if added:
            live.scope.learn(added)
            self._secrets.keep(live.session_id, live.state.principal, (*known, *added))

    async def _note(self, live: LiveSession, equipment: Equipment, equipped: list[str], by: Actor) -> None:
        """Name in the log what a session has now, if that is more than before, and what it was given for it."""
        before = live.state.config.sealed
        sealed = [*before, *(kind for kind in equipment.kinds if kind not in before)]
        if sealed != before or equipped:
            changed = SettingsChanged(
                by=by,
                sealed=sealed if sealed != before else msgspec.UNSET,
                equipped=equipped or msgspec.UNSET,
            )
            live.recorder.journal.write(changed, in_task=False)
            await live.recorder.settle()
        live.equipment.hold(equipment, sealed)


def equipment_of(action: Equipment) -> Equipment:
    """Return the equipment that an action carries, without the rest of the action."""
    return Equipment(**{name: getattr(action, name) for name in Equipment.__struct_fields__})


def _merge(kept: Equipment, given: Equipment) -> Equipment:
    """Return what is kept with what is given in its place. Secrets are only added: an old one may still turn up."""
    plays = given if given.script or given.recording else kept
    return Equipment(
        script=plays.script,
        recording=plays.recording,
        mcp_servers=given.mcp_servers or kept.mcp_servers,
        secrets=list(dict.fromkeys((*kept.secrets, *given.secrets))),
    )


def _attachable(equipment: Equipment) -> set[str]:
    return set(equipment.kinds) - {"secrets"}
