"""What of a request leaves for the provider: the query and headers that its clients need, and one login.

Both are allow-lists. With the operator's key in it, a request must not carry anything that changes its meaning on
the way (another method, another account to bill); what is not listed is left out.
"""

from urllib.parse import parse_qsl

from codesdk.contract.models import STAND_IN
from codesdk.gateway.reply import RawRequest
from codesdk.gateway.wires.exchange import Wire

_PARAMETERS = frozenset(
    {
        "after",
        "after_id",
        "alt",
        "api-version",
        "before_id",
        "beta",
        "client_version",
        "key",
        "limit",
        "order",
        "pageSize",
        "pageToken",
    }
)
_HEADERS = frozenset(
    {
        "accept",
        "accept-language",
        "chatgpt-account-id",
        "content-type",
        "conversation-id",
        "conversation_id",
        "idempotency-key",
        "openai-beta",
        "openai-organization",
        "openai-project",
        "originator",
        "session-id",
        "session_id",
        "thread-id",
        "thread_id",
        "traceparent",
        "user-agent",
        "version",
        "x-app",
        "x-client-request-id",
        "x-goog-api-client",
        "x-goog-user-project",
        "x-request-id",
    }
)
_PREFIXES = ("anthropic-", "x-claude-", "x-codex-", "x-oai-", "x-openai-", "x-stainless-")
_LOGINS = frozenset({"authorization", "x-api-key", "x-goog-api-key"})
# With the operator's key it is not the runtime who chooses what is billed.
_ACCOUNTS = frozenset({"chatgpt-account-id", "openai-organization", "openai-project", "x-goog-user-project"})


def plain_query(query: str) -> str:
    """Return a query's known parameters, as spelled, each once: two readers must not pick different ones."""
    kept: dict[str, str] = {}
    for piece in query.split("&"):
        name, _, value = piece.partition("=")
        # Other values of `alt` give an answer that nobody here can read, and so not count.
        if name in _PARAMETERS and (name != "alt" or value in ("sse", "json")):
            kept.setdefault(name, piece)
    return "&".join(kept.values())


def outbound_query(request: RawRequest) -> str:
    """Return the query to send: without a key, because addresses end up in logs."""
    pieces = request.query.split("&") if request.query else []
    return "&".join(piece for piece in pieces if not piece.startswith("key="))


def outbound_headers(request: RawRequest, wire: Wire, key: str | None) -> list[tuple[str, str]]:
    """Return the headers to send, with the key if there is one, else with the runtime's own login."""
    known = [(name, value) for name, value in request.headers if _is_known(name.lower())]
    # The answer is decoded as it passes, so it must be plain.
    kept = [*known, ("accept-encoding", "identity")]
    if key is None:
        logins = [(name, value) for name, value in request.headers if name.lower() in _LOGINS]
        return [*kept, *logins, *_login_of_query(request, wire)]
    kept = [(name, value) for name, value in kept if name.lower() not in _ACCOUNTS]
    if wire == "anthropic":
        return [*kept, ("x-api-key", key)]
    if wire == "gemini":
        return [*kept, ("x-goog-api-key", key)]
    return [*kept, ("authorization", f"Bearer {key}")]


def brings_login(request: RawRequest) -> bool:
    """Return whether a request has a login of its own, not only the placeholder."""
    headers = [value for name, value in request.headers if name.lower() in _LOGINS]
    words = [word for value in headers for word in value.split() if word.lower() != "bearer"]
    return any(word != STAND_IN for word in (*words, *_keys_of_query(request)))


def _is_known(name: str) -> bool:
    return name in _HEADERS or name.startswith(_PREFIXES)


def _login_of_query(request: RawRequest, wire: Wire) -> list[tuple[str, str]]:
    """Return Gemini's `?key=` as the equivalent header."""
    if wire != "gemini" or any(name.lower() == "x-goog-api-key" for name, _ in request.headers):
        return []
    return [("x-goog-api-key", value) for value in _keys_of_query(request)][:1]


def _keys_of_query(request: RawRequest) -> list[str]:
    return [value for name, value in parse_qsl(request.query) if name == "key"]
