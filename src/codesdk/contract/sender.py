"""What a request says of itself: its id, the client that sent it, and the trace that it is part of.

All three come from outside, and every event that a request brings about carries them. So they are short, in
few characters, and anything else is refused.
"""

import re
from typing import Self

import msgspec

from codesdk.contract.errors import InvalidRequest

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:=/+@-]{1,64}")
CLIENT_ID_CHARS = 64
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Sender(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request behind an action. Events have it in their `trace`."""

    request_id: str | None = None
    client_id: str | None = None
    traceparent: str | None = None
    """The caller's span, as W3C Trace Context writes it. Tasks are spans below it."""

    def named(self, other: "Sender") -> Self:
        """Return this one with what another says in place of its own. Raise `InvalidRequest` if it is not valid."""
        other.check()
        said = {
            name: value for name in Sender.__struct_fields__ if (value := getattr(other, name)) is not None
        }
        return msgspec.structs.replace(self, **said)

    def check(self) -> None:
        """Raise `InvalidRequest` if a name is not one."""
        if self.request_id is not None and not is_request_id(self.request_id):
            raise InvalidRequest("A request id is 1 to 64 letters, digits or any of _ . : = / + @ -.")
        if self.client_id is not None and not is_client_id(self.client_id):
            raise InvalidRequest(f"A client id is 1 to {CLIENT_ID_CHARS} printable characters.")
        if self.traceparent is not None and not is_traceparent(self.traceparent):
            raise InvalidRequest(
                "The traceparent is not one of W3C Trace Context: 00-TRACE-SPAN-FLAGS in hex."
            )


def is_request_id(text: object) -> bool:
    """Return whether this is a text that can be the id of a request."""
    return isinstance(text, str) and _REQUEST_ID.fullmatch(text) is not None


def is_client_id(text: object) -> bool:
    """Return whether this is a text that can name a client: on one line, and not only spaces."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= CLIENT_ID_CHARS
        and text.isprintable()
        and not text.isspace()
    )


def is_traceparent(text: object) -> bool:
    """Return whether this is a traceparent. One of a later version is, too, without what it adds."""
    return isinstance(text, str) and _TRACEPARENT.fullmatch(text) is not None


def traceparent_of(header: str) -> str | None:
    """Return the traceparent in a header, or None if it is not valid: then the trace begins here."""
    # A later version may have more fields behind these four; version 00 may not.
    known = header if header.startswith("00") else header[:55] if header[55:56] in ("", "-") else ""
    return known if is_traceparent(known) else None
