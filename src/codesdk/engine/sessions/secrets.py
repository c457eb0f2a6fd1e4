"""The secrets known here, of the engine and of its sessions → what takes them out of values.

Owned by `Engine`. They are never stored; those of a session outlive its time in memory, so that it has them
when it is loaded again.
"""

from collections.abc import Container, Iterable

from codesdk.redaction import Redactor


class Redactors:
    """What must not be told, and by whom it was said."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.own = Redactor(secrets)
        self._kept: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._of_principals: dict[str, Redactor] = {}

    def plus(self, secrets: tuple[str, ...]) -> Redactor:
        """Return what takes out the engine's secrets and these."""
        return Redactor((*self.own.secrets, *secrets)) if secrets else self.own

    def of_session(self, session_id: str) -> Redactor:
        """Return what takes out the secrets that a session was given."""
        return self.plus(self.secrets(session_id))

    def of_principal(self, principal: str, loaded: Container[str]) -> Redactor:
        """Return what takes out the secrets of all sessions of a principal that are in memory."""
        found = self._of_principals.get(principal)
        if found is None:
            kept = [words for name, (by, words) in self._kept.items() if by == principal and name in loaded]
            found = self.plus(tuple(sorted({word for words in kept for word in words})))
            self._of_principals[principal] = found
        return found

    def secrets(self, session_id: str) -> tuple[str, ...]:
        """Return what a session was given to keep."""
        return self._kept[session_id][1] if session_id in self._kept else ()

    def keep(self, session_id: str, principal: str, secrets: tuple[str, ...]) -> None:
        """Keep these for a session, and no others."""
        self._kept[session_id] = (principal, secrets)
        self._of_principals.pop(principal, None)

    def forget(self, session_id: str) -> None:
        """Keep nothing for a session any more."""
        self._kept.pop(session_id, None)
