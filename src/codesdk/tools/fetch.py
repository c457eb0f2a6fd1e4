"""`http.fetch`: the address of a public page → its text. Off unless added.

A name is resolved once, all of its addresses must be public, and the connection goes to one of these
addresses, so that a changed name cannot lead to a private one. Redirects are followed only on the same
host: only that was allowed.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec
from msgspec import Meta

from codesdk.contract.ports import ToolRun
from codesdk.contract.tools import SandboxSummary, Subjects, ToolAnnotations
from codesdk.sandbox import INTERNET, PORTS, Internet, Streams, check_hosts, is_public
from codesdk.tools.http_get import Answer, BadAnswer, get
from codesdk.tools.registry import Tool, ToolContext, ToolError, make_tool

MAX_REDIRECTS = 5
MAX_SHOWN_CHARS = 100_000
_DEFAULT_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEXT_TYPES = ("application/json", "application/xml", "application/javascript", "application/x-ndjson")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~-._?#[]"


class FetchInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `http.fetch` takes."""

    url: Annotated[
        str, Meta(min_length=1, max_length=8_000, description="An http or https address on the internet.")
    ]


class Place(msgspec.Struct, frozen=True):
    """Where a request goes."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def name(self) -> str:
        """The host as written in a header."""
        bare = f"[{self.host}]" if ":" in self.host else self.host
        return bare if self.port == _DEFAULT_PORTS[self.scheme] else f"{bare}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.name}{self.target}"


def fetch_tool(
    *,
    hosts: Sequence[str] | None = None,
    timeout_s: float = 30.0,
    max_bytes: int = 2_000_000,
    internet: Internet = INTERNET,
    tls: ssl.SSLContext | None = None,
) -> Tool:
    """Return the tool. With `hosts`, only those can be reached: names, or `*.` and a domain.

    Raise `InvalidRequest` if one of them is not a host. Tests replace `internet` and `tls`.
    """
    check_hosts(hosts or ())
    fetcher = _Fetcher(hosts, max_bytes, internet, tls)

    async def fetch(args: FetchInput, context: ToolContext) -> ToolRun:
        """Get a public page or file of text from the internet and return its text. Only GET, no private addresses."""
        try:
            async with asyncio.timeout(timeout_s):
                return await fetcher.fetch(place_of(args.url))
        except TimeoutError:
            raise ToolError(f"The server did not answer within {timeout_s:g} s.") from None

    return make_tool(
        fetch,
        name="http.fetch",
        tool_class="network",
        sandbox=SandboxSummary(network=True, timeout_ms=round(timeout_s * 1000)),
        annotations=ToolAnnotations(title="Fetch a page", idempotent=True),
        subjects=_subjects,
    )


def _subjects(args: FetchInput) -> Subjects:
    try:
        return Subjects(hosts=[place_of(args.url).host])
    except ToolError:  # the run fails with the same error, so there is nothing to decide on
        return Subjects()


def place_of(url: str) -> Place:
    """Split an address into its parts. Raise `ToolError` if it cannot be fetched."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise ToolError(f'"{url[:200]}" is not an address that can be fetched.') from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ToolError("Give a full address that begins with http:// or https://.")
    if parts.username is not None or parts.password is not None:
        raise ToolError("The address contains a user name or password; addresses with those are not fetched.")
    port = _DEFAULT_PORTS[parts.scheme] if port is None else port
    if port not in PORTS:
        raise ToolError("Only the ports 80 and 443 can be reached.")
    return Place(parts.scheme, _host(parts.hostname), port, _target(parts))


def _host(name: str) -> str:
    """Return a host name as DNS knows it, which is also how policy rules are written."""
    try:
        plain = name if ":" in name else name.encode("idna").decode("ascii")
    except UnicodeError:
        raise ToolError(f'"{name[:200]}" is not the name of a host.') from None
    # One spelling for each host: rules and allow lists compare texts.
    plain = plain.lower().rstrip(".")
    if not plain or any(char.isspace() or not char.isprintable() for char in plain):
        raise ToolError(f'"{name[:200]}" is not the name of a host.')
    return plain


def _target(parts: SplitResult) -> str:
    query = f"?{parts.query}" if parts.query else ""
    return quote(f"{parts.path or '/'}{query}", safe=_SAFE_IN_PATH)


class _Fetcher:
    """Fetches an address, following its redirects."""

    def __init__(
        self, hosts: Sequence[str] | None, max_bytes: int, internet: Internet, tls: ssl.SSLContext | None
    ) -> None:
        self._hosts = None if hosts is None else [host.lower().rstrip(".") for host in hosts]
        self._max_bytes = max_bytes
        self._internet = internet
        self._tls = tls

    async def fetch(self, place: Place) -> ToolRun:
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._ask(place)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or location is None:
                return _told(place, answer)
            there = place_of(urljoin(place.url, location))
            # Policy has decided on this host only; a step down from https would expose the request.
            if there.host != place.host or (place.scheme, there.scheme) == ("https", "http"):
                return ToolRun(result=f"{place.url} leads to {there.url}. Fetch that if it is what you want.")
            place = there
        raise ToolError(f"{place.host} redirected more than {MAX_REDIRECTS} times.")

    async def _ask(self, place: Place) -> Answer:
        if self._hosts is not None and not _is_listed(place.host, self._hosts):
            raise ToolError(
                f"{place.host} is not an allowed host. Allowed: {', '.join(self._hosts) or 'none'}."
            )
        addresses = await self._addresses(place)
        try:
            reader, writer = await self._connect(place, addresses)
            try:
                return await get(reader, writer, place.name, place.target, self._max_bytes)
            finally:
                writer.close()
        except ssl.SSLError as error:
            why = str(
                getattr(error, "verify_message", None) or error.reason or "the TLS handshake failed"
            ).rstrip(".")
            raise ToolError(f"There is no secure connection to {place.host}: {why}.") from None
        except BadAnswer as error:
            raise ToolError(f"{place.host} sent an unreadable answer: {error}.") from None
        except OSError:
            raise ToolError(f"{place.host} cannot be reached.") from None

    async def _addresses(self, place: Place) -> Sequence[str]:
        """Resolve a name once. All addresses must be public: a private one may be the real target."""
        try:
            found = await self._internet.resolve(place.host, place.port)
        except (OSError, UnicodeError):
            raise ToolError(f"There is no host {place.host}.") from None
        if not found or not all(is_reachable(address) for address in found):
            raise ToolError(f"{place.host} has a private address; only public addresses can be fetched.")
        return found

    async def _connect(self, place: Place, addresses: Sequence[str]) -> Streams:
        """Connect to the first address that answers.

        Never connect by name: it could resolve differently now.
        """
        for address in addresses[:-1]:
            try:
                return await self._open(place, address)
            except ssl.SSLError:  # also an OSError, but another address would not help
                raise
            except OSError:
                continue
        return await self._open(place, addresses[-1])

    async def _open(self, place: Place, address: str) -> Streams:
        reader, writer = await self._internet.connect(address, place.port)
        if place.scheme == "https":
            try:
                self._tls = self._tls or await asyncio.to_thread(ssl.create_default_context)
                await writer.start_tls(self._tls, server_hostname=place.host)
            except BaseException:
                writer.close()
                raise
        return reader, writer


def is_reachable(text: str) -> bool:
    """Return whether an address is on the public internet. Of IPv6, only global unicast counts."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return address in _GLOBAL_UNICAST and is_public(text)
    return is_public(text)


def _is_listed(host: str, hosts: Sequence[str]) -> bool:
    return any(host.endswith(each[1:]) if each.startswith("*.") else host == each for each in hosts)


def _told(place: Place, answer: Answer) -> ToolRun:
    """Return an answer as text for a model. A status of 400 or more is an error."""
    kind = answer.headers.get("content-type", "")
    head = f"{answer.status} {answer.reason}".strip() + f" from {place.url}"
    if not _is_text(kind, answer.body):
        size = f"{len(answer.body)} bytes{' or more' if answer.cut else ''}"
        what = kind.partition(";")[0].strip()[:100] or "not text"
        return ToolRun(result=f"{head}: {what}, {size}; only text is shown.", is_error=True)
    text = _decode(kind, answer.body)
    notes = [f"(cut after {MAX_SHOWN_CHARS} characters)"] if len(text) > MAX_SHOWN_CHARS else []
    notes += ["(the content was longer, or broke off)"] if answer.cut and not notes else []
    return ToolRun(
        result="\n".join([head, "", text[:MAX_SHOWN_CHARS], *notes]), is_error=answer.status >= 400
    )


def _is_text(kind: str, body: bytes) -> bool:
    what = kind.partition(";")[0].strip().lower()
    if not what:
        return b"\0" not in body
    return what.startswith(("text/", *_TEXT_TYPES)) or what.endswith(("+json", "+xml"))


def _decode(kind: str, body: bytes) -> str:
    """Decode a body by its declared charset, else as UTF-8."""
    words = [word.strip() for word in kind.split(";")[1:]]
    charset = next((word[8:].strip("\"' ") for word in words if word.lower().startswith("charset=")), "utf-8")
    try:
        return body.decode(charset, "replace")
    except (LookupError, ValueError):
        return body.decode("utf-8", "replace")
