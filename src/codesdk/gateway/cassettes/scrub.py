"""What passes through the gateway → the same without secrets, fit for a cassette.

The login that a request brings counts as a known secret when its exchange is redacted. An answer is
redacted as text in chunks, and also by the content of its events, because a model may stream a secret in
pieces that appear nowhere in the stream as one text.
"""

import codecs
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, urlencode

from codesdk.contract.errors import InvalidRequest
from codesdk.gateway.cassettes.scattered import find_scattered, splice
from codesdk.gateway.reply import RawRequest
from codesdk.redaction import Redactor

SHORTEST_LOGIN = 12
"""A shorter login is a placeholder such as `test`, which must not be removed from every text."""

KEPT_HEADERS = frozenset({"content-type", "retry-after", "retry-after-ms", "x-should-retry"})
KEPT_QUERY = frozenset({"alt", "beta"})
_LOGIN_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key"})
_LOGIN_QUERY = frozenset({"key", "api_key", "access_token"})


class Scrubber:
    """Provides, for each request, a redactor of the session's secrets and the request's own."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._logins: frozenset[str] = frozenset()
        self._redactor = Redactor(self._secrets)

    def for_request(self, request: RawRequest) -> Redactor:
        """Return the redactor for a request and its answer."""
        logins = frozenset(logins_of(request))
        if logins != self._logins:
            self._logins = logins
            self._redactor = Redactor((*self._secrets, *logins))
        return self._redactor


def clean_query(query: str) -> str:
    """Return the part of a query that the shape of the answer depends on."""
    return urlencode([(name, value) for name, value in parse_qsl(query) if name in KEPT_QUERY])


def clean_headers(headers: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """Return the headers of an answer that clients act on, without ids, cookies and account limits."""
    named = {name.lower(): value for name, value in headers.items()}
    return {name: redactor.text(named[name]) for name in sorted(KEPT_HEADERS & named.keys())}


def clean_chunks(chunks: list[bytes], redactor: Redactor) -> list[str] | list[bytes]:
    """Return the same number of chunks without secrets: as texts, or as bytes if the answer is not UTF-8."""
    try:
        texts = _decode(chunks)
    except UnicodeDecodeError:
        return _clean_bytes(chunks, redactor)
    texts = splice(texts, find_scattered("".join(texts), redactor))
    whole = "".join(texts)
    if redactor.text(whole) is whole:
        return texts
    stream = redactor.stream()
    # A stream redactor keeps the cuts between chunks, while a secret may cross them.
    cleaned = [stream.feed(text) for text in texts]
    cleaned[-1] += stream.flush()
    return cleaned


def logins_of(request: RawRequest) -> Iterator[str]:
    """Yield the logins that a request brings, in its headers or its query."""
    return (login for login in _logins(request) if is_login(login))


def is_login(text: str) -> bool:
    """Return whether a text can be redacted as a login: it is no placeholder, and can be told from the marker."""
    try:
        Redactor([text])
    except InvalidRequest:
        return False
    return len(text) >= SHORTEST_LOGIN


def _logins(request: RawRequest) -> Iterator[str]:
    for name, value in request.headers:
        if name.lower() in _LOGIN_HEADERS:
            yield from value.split()
    for name, value in parse_qsl(request.query):
        if name in _LOGIN_QUERY:
            yield value


def _decode(chunks: list[bytes]) -> list[str]:
    """Return the chunks as texts; a character cut in two goes to the second chunk."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    texts = [decoder.decode(chunk) for chunk in chunks]
    decoder.decode(b"", final=True)
    return texts


def _clean_bytes(chunks: list[bytes], redactor: Redactor) -> list[bytes]:
    whole = b"".join(chunks)
    cleaned = redactor.text(redactor.data(whole).decode("latin-1")).encode("latin-1")
    # Positions are lost in what is not text, so everything goes into the first chunk.
    return chunks if cleaned == whole else [cleaned, *[b""] * (len(chunks) - 1)]
