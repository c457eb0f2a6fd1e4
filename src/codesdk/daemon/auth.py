"""A request's headers → who sends it and what it may do.

Without tokens, the daemon is open to whoever reaches its loopback address, as the principal `local`. As soon
as a token exists, or the operator requires one, every request needs one. Pages of other sites are refused.
"""

import hmac
import secrets
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from codesdk.contract.actions import LOCAL, SCOPES, Caller, TokenScope
from codesdk.contract.errors import Forbidden
from codesdk.daemon.problems import Refused, who_are_you
from codesdk.local import PREFIX, TokenFile

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Admitted(NamedTuple):
    """Who sends a request that was let in, and with which token."""

    caller: Caller
    token: str | None = None

    @property
    def principal(self) -> str:
        """Whose sessions it may reach."""
        return self.caller.principal

    def may(self, scope: TokenScope) -> bool:
        """Return whether the caller has a scope."""
        return self.caller.may(scope)


def admit(
    principal: str, scopes: Iterable[TokenScope], token: str | None = None, client_id: str | None = None
) -> Admitted:
    """Return a caller that was let in."""
    caller = msgspec.structs.replace(Caller.of(principal), scopes=frozenset(scopes), client_id=client_id)
    return Admitted(caller, token)


class Guard:
    """Lets requests in, or refuses them."""

    def __init__(self, tokens: TokenFile, *, hosts: Iterable[str] = (), always: bool = False) -> None:
        self._tokens = tokens
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._always = always
        self.local_token = PREFIX + secrets.token_urlsafe(32)
        """The token of whoever can read the lock file, such as the command line of the same user."""

    @property
    def needs_token(self) -> bool:
        """Whether a request without a token is refused."""
        return self._always or bool(self._tokens.all())

    def check_origin(self, headers: dict[bytes, bytes]) -> None:
        """Refuse what a browser sends for another site: by its origin, or by a name made to resolve to us."""
        host = headers.get(b"host", b"").decode("latin-1")
        if _hostname(f"//{host}") not in self._hosts:
            raise Refused(
                421, Forbidden("The Host header is not a name of this daemon. See codesdkd --allow-host.")
            )
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin.decode("latin-1")) != host.lower():
            raise Forbidden("Requests from web pages of other sites are refused.")
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Forbidden("Requests from web pages of other sites are refused.")

    def caller(self, headers: dict[bytes, bytes]) -> Admitted:
        """Return who sends the request. Raise if the token is missing or not valid."""
        given = headers.get(b"authorization", b"").decode("latin-1")
        if not given:
            if self.needs_token:
                raise who_are_you(
                    "A token is needed: Authorization: Bearer … (`codesdk tokens add` makes one)."
                )
            return admit(LOCAL, SCOPES)
        scheme, _, secret = given.partition(" ")
        found = self._known(secret.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise who_are_you("The token is wrong, revoked or expired. `codesdk tokens add` makes a new one.")
        return found

    def still(self, caller: Admitted) -> bool:
        """Return whether a caller that was let in would still be: its token may have been revoked."""
        if caller.token is None:
            return not self.needs_token
        # As a whole: a token that now has fewer scopes must not keep a stream that it opened before.
        return self._known(caller.token) == caller

    def _known(self, secret: str) -> Admitted | None:
        # In constant time, so that the token cannot be guessed piece by piece.
        if hmac.compare_digest(secret.encode(), self.local_token.encode()):
            return admit(LOCAL, SCOPES, secret)
        token = self._tokens.find(secret)
        return None if token is None else admit(token.principal, token.scopes, secret, token.name)


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return None


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
