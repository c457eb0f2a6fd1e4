"""http.fetch against a server on loopback that plays the internet: what is shown, what is followed, what is refused."""

import asyncio
import gzip
import ssl
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.tools.calling import ready, where

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import ToolInvocation, ToolRun
from codesdk.contract.tools import SandboxSummary, Subjects, ToolAnnotations
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.egress import Internet
from codesdk.tools import ToolRegistry
from codesdk.tools.fetch import fetch_tool, is_reachable

ADDRESSES = {
    "page.example": ["93.184.216.34"],
    "other.example": ["93.184.216.35"],
    "two.example": ["2606:4700::1", "93.184.216.34"],
    "inner.example": ["10.0.0.7"],
    "both.example": ["93.184.216.34", "127.0.0.1"],
    "nothing.example": [],
    "93.184.216.34": ["93.184.216.34"],
    "2130706433": ["127.0.0.1"],
    "xn--bcher-kva.example": ["93.184.216.34"],
}
PRIVATE = "has a private address; only public addresses can be fetched."


class World(NamedTuple):
    """An internet of a few names, all of which are one server here, and what was asked of it."""

    internet: Internet
    connected: list[tuple[str, int]]
    resolved: list[str]
    requests: list[bytes]
    answers: dict[str, bytes]

    def tools(self, **options: Any) -> ToolRegistry:
        return ToolRegistry([fetch_tool(internet=self.internet, **options)])

    async def fetch(self, url: str, **options: Any) -> ToolRun:
        return await self.tools(**options).run(call(url), lambda *_: None)


def call(url: str) -> ToolInvocation:
    return ToolInvocation(
        session_id="ses_1",
        task_id=None,
        tool_call_id="call_1",
        attempt=1,
        name="http.fetch",
        input={"url": url},
        workspace=Workspace("/"),
    )


def page(body: bytes = b"hello", status: str = "200 OK", **headers: str) -> bytes:
    named = {"Content-Type": "text/plain", "Content-Length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in named.items() if value)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def moved(location: str) -> bytes:
    return page(b"", "302 Found", Location=location)


async def _world(tls: ssl.SSLContext | None) -> AsyncGenerator[World]:
    requests: list[bytes] = []
    answers: dict[str, bytes] = {"/": page()}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            requests.append(head)
            answer = answers.get(head.split(b" ")[1].decode())
            if answer is None:
                await reader.read()  # never answers
            else:
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # it has heard enough
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    connected: list[tuple[str, int]] = []
    resolved: list[str] = []

    async def resolve(host: str, _: int) -> Sequence[str]:
        resolved.append(host)
        if host not in ADDRESSES:
            raise OSError("no such host")
        return ADDRESSES[host]

    async def connect(address: str, to: int) -> Any:
        connected.append((address, to))
        if ":" in address:
            raise OSError("no such network")
        return await asyncio.open_connection("127.0.0.1", port)

    yield World(Internet(resolve, connect), connected, resolved, requests, answers)
    server.close()
    await server.wait_closed()


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async for each in _world(None):
        yield each


async def test_a_page_is_shown_as_text(world):
    assert await world.fetch("http://page.example/") == ToolRun(
        result="200 OK from http://page.example/\n\nhello"
    )
    assert world.connected == [("93.184.216.34", 80)]
    assert world.requests == [
        b"GET / HTTP/1.1\r\nHost: page.example\r\nUser-Agent: codesdk\r\n"
        b"Accept: text/*, application/json, */*;q=0.5\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n"
    ]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (page("é".encode("latin-1"), Content_Type="text/html; charset=ISO-8859-1"), "é"),
        (page("é".encode(), Content_Type='text/html; charset="utf-8"'), "é"),
        (page(b"\xff", Content_Type="text/html; charset=nonsense"), "\ufffd"),
        (page(b"\xff", Content_Type="text/html; charset=zlib"), "\ufffd"),
        (page(b'{"a": 1}', Content_Type="application/problem+json"), '{"a": 1}'),
        (page(b"bare", Content_Type=""), "bare"),
        (page(b"until the end", Content_Length=""), "until the end"),
        (page(gzip.compress(b"pressed"), Content_Encoding="gzip"), "pressed"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n"
            b"3\r\nin \r\n6;x=y\r\npieces\r\n0\r\n\r\n",
            "in pieces",
        ),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + page(b"after hints"), "after hints"),
    ],
)
async def test_text_is_read_in_all_its_forms(world, answer, shown):
    world.answers["/"] = answer
    assert await world.fetch("http://page.example") == ToolRun(
        result=f"200 OK from http://page.example/\n\n{shown}"
    )


async def test_an_error_of_the_server_is_one(world):
    world.answers["/gone"] = page(b"sorry", "410 Gone")
    assert await world.fetch("http://page.example/gone") == ToolRun(
        result="410 Gone from http://page.example/gone\n\nsorry", is_error=True
    )


async def test_what_is_no_text_is_not_shown(world):
    world.answers["/"] = page(b"\x89PNG", Content_Type="image/png")
    assert await world.fetch("http://page.example/") == ToolRun(
        result="200 OK from http://page.example/: image/png, 4 bytes; only text is shown.", is_error=True
    )


@pytest.mark.parametrize(
    "answer",
    [
        page(b"a" * 5_000),
        page(b"a" * 5_000, Content_Length=""),
        page(b"a" * 5_000, Content_Length="9000"),
        page(gzip.compress(b"a" * 1_000_000), Content_Encoding="gzip"),
    ],
)
async def test_no_more_is_taken_than_is_wanted(world, answer):
    world.answers["/"] = answer
    ran = await world.fetch("http://page.example/", max_bytes=1_000)
    assert ran == ToolRun(
        result=f"200 OK from http://page.example/\n\n{'a' * 1_000}\n(the content was longer, or broke off)"
    )


async def test_long_text_is_cut(world):
    world.answers["/"] = page(b"a" * 150_000)
    ran = await world.fetch("http://page.example/")
    assert ran.result.endswith("aaa\n(cut after 100000 characters)")
    assert len(ran.result) < 100_200


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "the server does not speak HTTP"),
        (b"", "the server sent no complete answer"),
        (page(Content_Encoding="br"), "the compression of the content is not supported (br)"),
        (page(b"no gzip", Content_Encoding="gzip"), "the content is compressed, and damaged"),
        (page(X="y" * 70_000), "the server sends too much besides the content"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_said(world, answer, words):
    world.answers["/"] = answer
    assert await world.fetch("http://page.example/") == ToolRun(
        result=f"page.example sent an unreadable answer: {words}.", is_error=True
    )


async def test_a_server_that_does_not_answer_is_left(world):
    assert await world.fetch("http://page.example/silent", timeout_s=0.2) == ToolRun(
        result="The server did not answer within 0.2 s.", is_error=True
    )


async def test_a_redirect_on_the_same_host_is_followed_and_looked_at_again(world):
    world.answers.update({"/": moved("/next?a=b%20c"), "/next?a=b%20c": page(b"there")})
    assert await world.fetch("http://page.example/") == ToolRun(
        result="200 OK from http://page.example/next?a=b%20c\n\nthere"
    )
    assert world.resolved == ["page.example", "page.example"]


@pytest.mark.parametrize("location", ["http://other.example/", "//other.example/", "http://inner.example/"])
async def test_a_redirect_to_another_host_is_told_and_not_followed(world, location):
    world.answers["/"] = moved(location)
    host = location.split("/")[2]
    assert await world.fetch("http://page.example/") == ToolRun(
        result=f"http://page.example/ leads to http://{host}/. Fetch that if it is what you want."
    )
    assert world.resolved == ["page.example"]


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://page.example:22/", "gopher://page.example/"]
)
async def test_a_redirect_to_what_cannot_be_fetched_is_refused(world, location):
    world.answers["/"] = moved(location)
    ran = await world.fetch("http://page.example/")
    assert (ran.is_error, len(world.requests)) == (True, 1)


async def test_redirects_come_to_an_end(world):
    world.answers["/"] = moved("/")
    assert await world.fetch("http://page.example/") == ToolRun(
        result="page.example redirected more than 5 times.", is_error=True
    )
    assert len(world.requests) == 6


async def test_a_name_that_turns_private_between_redirects_is_refused(world, monkeypatch):
    world.answers["/"] = moved("/next")
    first = world.internet.resolve

    async def rebound(host: str, port: int) -> Sequence[str]:
        await first(host, port)
        return ["93.184.216.34"] if len(world.resolved) == 1 else ["127.0.0.1"]

    tools = ToolRegistry([fetch_tool(internet=world.internet._replace(resolve=rebound))])
    ran = await tools.run(call("http://page.example/"), lambda *_: None)
    assert (ran.result, len(world.requests)) == (f"page.example {PRIVATE}", 1)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://inner.example/", f"inner.example {PRIVATE}"),
        ("http://both.example/", f"both.example {PRIVATE}"),
        ("http://nothing.example/", f"nothing.example {PRIVATE}"),
        ("http://2130706433/", f"2130706433 {PRIVATE}"),
        ("http://unknown.example/", "There is no host unknown.example."),
        ("ftp://page.example/", "Give a full address that begins with http:// or https://."),
        ("page.example", "Give a full address that begins with http:// or https://."),
        ("http:///path", "Give a full address that begins with http:// or https://."),
        ("http://page.example:8080/", "Only the ports 80 and 443 can be reached."),
        ("http://page.example:x/", '"http://page.example:x/" is not an address that can be fetched.'),
        ("http://[::1/", '"http://[::1/" is not an address that can be fetched.'),
        (
            "http://user:word@page.example/",
            "The address contains a user name or password; addresses with those are not fetched.",
        ),
        ("http://page .example/", '"page .example" is not the name of a host.'),
        (f"http://{'a' * 70}.example/", f'"{"a" * 70}.example" is not the name of a host.'),
    ],
)
async def test_what_may_not_be_fetched_is_refused_in_words(world, url, words):
    assert await world.fetch(url) == ToolRun(result=words, is_error=True)
    assert (world.connected, world.requests) == ([], [])


@pytest.mark.parametrize(
    ("address", "reachable"),
    [
        ("93.184.216.34", True),
        ("2606:4700::1", True),
        ("::ffff:93.184.216.34", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("::127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fc00::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("ff02::1", False),
    ],
)
def test_only_public_addresses_are_reachable(address, reachable):
    assert is_reachable(address) is reachable


async def test_the_next_address_is_tried_if_one_does_not_answer(world):
    assert not (await world.fetch("http://two.example/")).is_error
    assert world.connected == [("2606:4700::1", 80), ("93.184.216.34", 80)]


async def test_a_list_of_hosts_leaves_only_those(world):
    hosts = ["*.example", "Page.Example."]
    assert not (await world.fetch("http://page.example/", hosts=["Page.Example"])).is_error
    assert await world.fetch("http://other.example/", hosts=["page.example"]) == ToolRun(
        result="other.example is not an allowed host. Allowed: page.example.", is_error=True
    )
    assert (await world.fetch("http://page.example/", hosts=[])).is_error
    with pytest.raises(InvalidRequest):
        world.tools(hosts=hosts)


async def test_odd_characters_reach_the_server_encoded(world):
    world.answers["/a%20b%C3%A9?q=%22"] = page(b"found")
    ran = await world.fetch('http://page.example/a bé?q="')
    assert ran.result.endswith("found")


async def test_policy_is_told_the_host_as_the_name_system_knows_it(world):
    tools = world.tools()
    for url, hosts in {
        "http://Page.Example./": ["page.example"],
        "https://BÜCHER.example/": ["xn--bcher-kva.example"],
        "http://[::1]/": ["::1"],
        "nonsense": [],
        "http://user@page.example/": [],
    }.items():
        assert ready(tools, "http.fetch", {"url": url}).subjects == Subjects(hosts=hosts)


async def test_it_is_of_the_class_network_and_off_by_default(world):
    tools = world.tools(timeout_s=5)
    (spec,) = tools.specs()
    assert (spec.name, spec.tool_class) == ("http.fetch", "network")
    assert spec.annotations == ToolAnnotations(title="Fetch a page", idempotent=True)
    online = SandboxSummary(network=True, timeout_ms=5_000)
    assert where(tools, "http.fetch", {"url": "http://a.example/"}) == ("codesdk_host", online)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A certificate for page.example that signs itself, with its key."""
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    subject = ["-subj", "/CN=page.example", "-addext", "subjectAltName=DNS:page.example"]
    files = ["-keyout", str(path), "-out", f"{path}.crt"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@pytest.fixture
async def secure(certificate: Path) -> AsyncGenerator[World]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async for each in _world(context):
        yield each


@pytest.fixture
def trusting(certificate: Path) -> Callable[[], ssl.SSLContext]:
    return lambda: ssl.create_default_context(cafile=f"{certificate}.crt")


async def test_a_secure_page_is_fetched_by_its_name_from_the_checked_address(secure, trusting):
    secure.answers["/"] = page(b"a" * 90_000)
    ran = await secure.fetch("https://page.example/", tls=trusting())
    assert ran == ToolRun(result=f"200 OK from https://page.example/\n\n{'a' * 90_000}")
    assert secure.connected == [("93.184.216.34", 443)]


async def test_a_server_that_is_not_who_it_should_be_is_refused(secure, trusting):
    ran = await secure.fetch("https://other.example/", tls=trusting())
    assert ran.result.startswith("There is no secure connection to other.example: Hostname mismatch")
    ran = await secure.fetch("https://page.example/")
    assert ran.result.startswith("There is no secure connection to page.example: self-signed certificate")
    assert secure.requests == []


async def test_a_secure_page_does_not_lead_to_an_open_one(secure, trusting):
    secure.answers["/"] = moved("http://page.example/")
    ran = await secure.fetch("https://page.example/", tls=trusting())
    assert (
        ran.result
        == "https://page.example/ leads to http://page.example/. Fetch that if it is what you want."
    )
