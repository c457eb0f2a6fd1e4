"""The secrets known here, of the engine and of its sessions → redactors that take them out of values.

They are never stored. A session's secrets outlive its time in memory, so that it has them when it is loaded again.
"""

from collections.abc import Container, Iterable

from codesdk.redaction import Redactor


class SessionSecrets:
    """What must not be told, and whose it is."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.own = Redactor(secrets)
        self._kept: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._of_principals: dict[str, Redactor] = {}

    def plus(self, secrets: tuple[str, ...]) -> Redactor:
        """Return a redactor for the engine's secrets and these."""
        return Redactor((*self.own.secrets, *secrets)) if secrets else self.own

    def of_session(self, session_id: str) -> Redactor:
        """Return a redactor for the secrets that a session was given."""
        return self.plus(self.of(session_id))

    def of_principal(self, principal: str, loaded: Container[str]) -> Redactor:
        """Return a redactor for the secrets of all sessions of a principal that are in memory."""
        found = self._of_principals.get(principal)
        if found is None:
            kept = [words for name, (by, words) in self._kept.items() if by == principal and name in loaded]
            found = self.plus(tuple(sorted({word for words in kept for word in words})))
            self._of_principals[principal] = found
        return found

    def of(self, session_id: str) -> tuple[str, ...]:
        """Return what a session was given to keep."""
        return self._kept[session_id][1] if session_id in self._kept else ()

    def keep(self, session_id: str, principal: str, secrets: tuple[str, ...]) -> None:
        """Keep these for a session, and no others."""
        self._kept[session_id] = (principal, secrets)
        self._of_principals.pop(principal, None)

    def forget(self, session_id: str) -> None:
        """Keep nothing for a session any more."""
        self._kept.pop(session_id, None)
