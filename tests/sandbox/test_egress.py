"""The way out: what is let through from inside a sandbox, by root and by an ordinary user, and what the proxy answers."""

import asyncio
import os
import resource
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.sandbox.attacks import PRELUDE
from tests.sandbox.driver import ORDINARY, Job, Report, drive, internet
from tests.sandbox.stage import open_directory

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.descriptors import descriptor_limit, descriptor_marks
from codesdk.sandbox.backend import Command
from codesdk.sandbox.egress import EgressLimits, EgressProxy, check_hosts, is_public
from codesdk.sandbox.owner import SANDBOX_USER, User

IS_ROOT = os.geteuid() == 0

FETCH = (
    PRELUDE
    + """
import http.client, urllib.request, urllib.error
for url in sys.argv[2:]:
    try:
        say(urllib.request.urlopen(url, timeout=20).read().decode())
    except urllib.error.HTTPError as error:
        say(error.code)
    except urllib.error.URLError as error:
        say(getattr(error.reason, "strerror", None) or str(error.reason))

def tunnel(host, port):
    there = http.client.HTTPConnection("127.0.0.1", 3128, timeout=20)
    there.set_tunnel(host, port)
    try:
        there.request("GET", "/through-a-tunnel")
        say(there.getresponse().read().decode())
    except OSError as error:
        say(str(error).split("failed: ")[-1].split(" ")[0])

tunnel("allowed.example", 443)
tunnel("allowed.example", 22)
tunnel("other.example", 443)
attempt(socket.create_connection, ("93.184.216.34", 80), 5)
attempt(socket.create_connection, ("127.0.0.1", stage["port"]), 5)
"""
)


class _Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.headers['Host']}{self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def _server() -> Generator[int]:
    """Be every host of the internet."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("who", ["root", "ordinary"] if IS_ROOT else ["ordinary"])
def test_from_inside_only_allowed_hosts_are_reached_and_only_through_the_proxy(who):
    owner = User(os.geteuid(), os.getegid())
    if IS_ROOT:
        owner = SANDBOX_USER if who == "root" else User(ORDINARY, ORDINARY)
    urls = [
        f"http://{host}/page"
        for host in ("allowed.example", "sub.wide.example", "other.example", "inner.example")
    ]
    with open_directory() as workspace, _server() as port:
        os.chown(workspace, *owner)
        command = Command(
            session_id="s",
            argv=["/usr/bin/python3", "-I", "-c", FETCH, f'{{"port": {port}}}', *urls],
            workspace=Workspace(str(workspace)),
            hosts=["allowed.example", "*.wide.example", "inner.example"],
        )
        uid = ORDINARY if IS_ROOT and who == "ordinary" else None
        reports = drive([Job("fetch", command)], uid=uid, port=port)
    assert reports.jobs["fetch"] == Report(
        words=[
            "allowed.example/page",
            "502",  # sub.wide.example is allowed, and has no address
            "403",
            "403",
            "allowed.example:443/through-a-tunnel",
            "403",
            "403",
            "ENETUNREACH",
            "ECONNREFUSED",
        ],
        exit_code=0,
        refused_hosts=["sub.wide.example", "other.example", "inner.example", "allowed.example"],
    )


async def _ask(proxy: EgressProxy, request: bytes) -> tuple[str, str | None]:
    """Send a request to a proxy; return the status and the reason that it gives for a refusal."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    await proxy.serve(listener)
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
        await proxy.close()
    lines = answer.decode().split("\r\n")
    reasons = [line.partition(": ")[2] for line in lines if line.startswith("X-Proxy-Error")]
    return lines[0].removeprefix("HTTP/1.1 ").removeprefix("HTTP/1.0 "), reasons[0] if reasons else None


@pytest.mark.parametrize(
    ("request_line", "answer"),
    [
        ("CONNECT other.example:443", ("403 Forbidden", "the host is not on the allow list")),
        ("CONNECT allowed.example.evil.example:443", ("403 Forbidden", "the host is not on the allow list")),
        ("CONNECT 93.184.216.34:443", ("403 Forbidden", "the host is not on the allow list")),
        ("CONNECT allowed.example:25", ("403 Forbidden", "only ports 80 and 443 can be reached")),
        ("CONNECT inner.example:443", ("403 Forbidden", "the name leads to a private address")),
        ("CONNECT both.example:443", ("403 Forbidden", "the name leads to a private address")),
        ("CONNECT missing.example:443", ("502 Bad Gateway", "the host cannot be reached")),
        ("CONNECT allowed.example:x", ("400 Bad Request", "that is no host and port")),
        ("GET http://user@allowed.example/", ("400 Bad Request", "that is no host and port")),
        ("GET /path", ("400 Bad Request", "this is a proxy: give the whole URL")),
        ("nonsense", ("400 Bad Request", "this is a proxy for HTTP")),
    ],
)
async def test_a_refusal_says_why(request_line, answer):
    hosts = ["allowed.example", "inner.example", "both.example", "missing.example"]
    proxy = EgressProxy(hosts, internet(1))
    assert await _ask(proxy, f"{request_line} HTTP/1.1\r\n\r\n".encode()) == answer


async def test_names_are_compared_without_case_and_final_dot():
    with _server() as port:
        proxy = EgressProxy(["Allowed.example"], internet(port))
        status, _ = await _ask(proxy, b"GET http://ALLOWED.example./x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status == "200 OK"


async def test_a_command_cannot_move_more_than_it_may():
    with _server() as port:
        proxy = EgressProxy(["allowed.example"], internet(port), EgressLimits(bytes=40))
        request = b"GET http://allowed.example/" + b"x" * 100 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
        assert await _ask(proxy, request) == ("", None)


async def _connect(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Open connections that never say a word."""
    loop = asyncio.get_running_loop()
    connections: list[socket.socket] = []
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        connections.append(connection)
    return connections


async def _refusals(connections: list[socket.socket]) -> list[bytes]:
    loop = asyncio.get_running_loop()
    return [(await loop.sock_recv(connection, 1000)).split(b"\r\n")[0] for connection in connections]


async def test_connections_that_say_nothing_take_no_more_places_than_there_are():
    proxy = EgressProxy(["allowed.example"], internet(1), EgressLimits(connections=3))
    listener = socket.create_server(("127.0.0.1", 0), backlog=300)
    await proxy.serve(listener)
    connections = await _connect(listener.getsockname(), 200)
    try:
        # The first three are waited for; the others are told at once, and hold no descriptor of ours.
        assert await _refusals(connections[3:]) == [b"HTTP/1.1 503 Service Unavailable"] * 197
    finally:
        for connection in connections:
            connection.close()
        await proxy.close()


async def test_a_place_that_is_left_is_given_to_the_next():
    with _server() as port:
        proxy = EgressProxy(["allowed.example"], internet(port), EgressLimits(connections=1))
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        await proxy.serve(listener)
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET http://allowed.example/x HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await reader.readline()).endswith(b"200 OK\r\n")
            await reader.read()
            writer.close()
            await writer.wait_closed()
            while proxy.connections:  # noqa: ASYNC110 - it has closed its side
                await asyncio.sleep(0)
        await proxy.close()


async def test_the_descriptors_that_are_kept_for_others_are_not_for_commands():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[int] = []
    proxy = EgressProxy(["allowed.example"], internet(1))
    listener = socket.create_server(("127.0.0.1", 0))
    await proxy.serve(listener)
    kept.append(highest := os.dup(0))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest * 4, hard))
        crowded_from, _ = descriptor_marks(descriptor_limit())
        while not kept or kept[-1] < crowded_from:
            kept.append(os.dup(0))
        connections = await _connect(listener.getsockname(), 2)
        assert await _refusals(connections) == [b"HTTP/1.1 503 Service Unavailable"] * 2
        for connection in connections:
            connection.close()
    finally:
        for descriptor in kept:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await proxy.close()


async def test_a_head_without_end_gets_no_answer():
    proxy = EgressProxy(["allowed.example"], internet(1))
    assert await _ask(proxy, b"GET http://allowed.example/ HTTP/1.1\r\n" + b"x" * 100_000) == ("", None)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "fec0::1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe",
    ],
)  # fmt: skip
def test_addresses_that_lead_inside_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_of_the_internet_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["*", "*.com", "*.", "", "a b", "http://a.example", "a.example:443", "a*.example", "ä.example"]
)
def test_what_is_no_host_name_cannot_be_allowed(host):
    with pytest.raises(InvalidRequest, match="cannot be allowed"):
        check_hosts([host])


def test_host_names_can_be_allowed():
    check_hosts(["a.example", "*.example.org", "xn--4ca.example", "10.0.0.1", "localhost"])
