"""Makes redactors from the secrets of the engine and its sessions.

Kept here once a session was loaded; beside the log they are part of its sealed equipment.
"""

import asyncio
from collections.abc import Container, Iterable

from codesdk.redaction import Redactor

_MANY_CHARS = 1_000


async def made_ready(redactor: Redactor) -> Redactor:
    """Return a redactor whose long secrets nobody on the loop will wait for."""
    if sum(map(len, redactor.secrets)) > _MANY_CHARS:
        await asyncio.to_thread(redactor.prepare)
    return redactor


class SessionSecrets:
    """Keeps the engine's secrets, and each session's own."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.own = Redactor(secrets)
        self._kept: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._of_principals: dict[str, Redactor] = {}

    def learn(self, secrets: Iterable[str]) -> list[str]:
        """Make these secrets of the engine. Return those that are new."""
        new = [secret for secret in secrets if secret not in self.own.secrets]
        if new:
            self.own = Redactor((*self.own.secrets, *new))
            self._of_principals.clear()
        return new

    def plus(self, secrets: tuple[str, ...]) -> Redactor:
        """Return a redactor for the engine's secrets and these."""
        return Redactor((*self.own.secrets, *secrets)) if secrets else self.own

    def of_principal(self, principal: str, loaded: Container[str]) -> Redactor:
        """Return a redactor for the secrets of all sessions of a principal that are in memory."""
        found = self._of_principals.get(principal)
        if found is None:
            kept = [words for name, (by, words) in self._kept.items() if by == principal and name in loaded]
            found = self.plus(tuple(sorted({word for words in kept for word in words})))
            self._of_principals[principal] = found
        return found

    def of(self, session_id: str) -> tuple[str, ...]:
        """Return the secrets that a session was given."""
        return self._kept[session_id][1] if session_id in self._kept else ()

    def keep(self, session_id: str, principal: str, secrets: tuple[str, ...]) -> None:
        """Replace the secrets of a session."""
        self._kept[session_id] = (principal, secrets)
        self._of_principals.pop(principal, None)

    def forget(self, session_id: str) -> None:
        """Drop the secrets of a session."""
        self._kept.pop(session_id, None)
