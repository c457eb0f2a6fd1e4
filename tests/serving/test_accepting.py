"""Clients that send half a request or nothing, and many of them: they are cut off, and others are served."""

import asyncio
import contextlib
import os
import resource
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from codesdk.client.connection import failure_of
from codesdk.serving import COUNTS, Limits, Message, Receive, Send, Serving, listen, read_body

QUICK = Limits(head_s=0.2, body_s=0.2, idle_s=0.2)
PATIENT = Limits(head_s=600, body_s=600, idle_s=600)
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


async def _echo(scope: Message, receive: Receive, send: Send) -> None:
    body = await read_body(receive, 10_000_000)
    headers = [(b"content-length", str(len(body or b"")).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def _serving(limits: Limits, app: Callable[..., Awaitable[None]] = _echo) -> AsyncGenerator[Connect]:
    listener = listen(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = Serving(app, listener, limits=limits)
    async with contextlib.AsyncExitStack() as clients:

        async def connect() -> Streams:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            clients.callback(writer.close)
            return reader, writer

        try:
            yield connect
        finally:
            await server.end()


async def _ask(streams: Streams, data: bytes = GET) -> bytes:
    """Send bytes and return the status line of the answer."""
    streams[1].write(data)
    return await streams[0].readline()


async def _all(reader: asyncio.StreamReader) -> bytes:
    """Return everything until the server closes the connection."""
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Allow this process only some more descriptors than it has."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    "half",
    [b"", b"GET / HT", GET[:-2], POST + b"x", b"\r\n"],
    ids=["nothing", "half a line", "half of the headers", "half a body", "an empty line"],
)
@pytest.mark.slow
async def test_a_request_that_does_not_arrive_is_closed(half: bytes):
    async with _serving(QUICK) as connect:
        reader, writer = await connect()
        writer.write(half)
        assert b'"code":"TIMEOUT"' in await _all(reader)


@pytest.mark.parametrize(
    "head",
    [b"GET /?" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n", GET[:-2] + b"x: y\r\n" * 12_000],
    ids=["one line", "many lines"],
)
async def test_headers_that_are_too_long_are_refused_also_if_they_arrive_at_once(head: bytes):
    asked: list[str] = []

    async def note(scope: Message, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await _echo(scope, receive, send)

    async with _serving(PATIENT, note) as connect:
        reader, writer = await connect()
        writer.write(head + b"\r\n")
        told = await _all(reader)
        # Whoever still sends when the connection is closed may not get to read why.
        assert not told or (told.startswith(b"HTTP/1.1 400 ") and b"too long" in told)
        assert await _ask(await connect(), GET.replace(b"/ ", b"/next ")) == b"HTTP/1.1 200 OK\r\n"
    assert asked == ["/next"]


async def test_a_second_request_that_does_not_arrive_is_closed_too():
    async with _serving(QUICK) as connect:
        reader, writer = await connect()
        assert await _ask((reader, writer)) == b"HTTP/1.1 200 OK\r\n"
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\r\n")  # ends the wait between two requests, and begins none
        assert (await _all(reader)).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_comes_after_its_answer_leaves_no_connection_behind():
    async def refuse(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with _serving(QUICK, refuse) as connect:
        reader, writer = await connect()
        assert await _ask((reader, writer), POST) == b"HTTP/1.1 401 Unauthorized\r\n"
        writer.write(b"x" * 100)
        assert b"HTTP/1.1 408 " in await _all(reader)


@pytest.mark.slow
async def test_a_slow_body_that_keeps_its_pace_is_taken():
    async with _serving(Limits(head_s=0.1, body_s=0.8, body_bytes_per_s=1)) as connect:
        reader, writer = await connect()
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        for _ in range(10):
            writer.write(b"x" * 10)
            await _all((await connect())[0])  # an idle one is closed: that is our clock
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_a_stream_stays_open_however_long_it_takes():
    let_go = asyncio.Event()

    async def stream(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await let_go.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async with _serving(QUICK, stream) as connect:
        watching, impatient = await connect(), await connect()
        assert await _ask(watching) == b"HTTP/1.1 200 OK\r\n"
        await _all(impatient[0])  # every limit has passed by the time this one is closed
        await _all((await connect())[0])
        let_go.set()
        assert b"last" in await watching[0].readuntil(b"last")


@pytest.mark.slow
async def test_a_thousand_half_sent_requests_are_closed_and_others_are_served():
    before = COUNTS.timed_out
    async with _serving(Limits(head_s=2)) as connect:
        half: list[Streams] = []
        for _ in range(1_000):
            half.append(await connect())
            half[-1][1].write(GET[:-2])
        assert await _ask(await connect()) == b"HTTP/1.1 200 OK\r\n"
        answers = await asyncio.gather(*(_all(reader) for reader, _ in half))
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 408"}
    assert COUNTS.timed_out - before == 1_000


async def test_idle_connections_make_room_for_those_with_a_request():
    before = COUNTS.evicted
    async with _serving(Limits(connections=10, head_s=600)) as connect:
        idle = [await connect() for _ in range(100)]
        assert await _ask(await connect()) == b"HTTP/1.1 200 OK\r\n"
        assert await _all(idle[0][0]) == b""  # the one that waited longest went first
        assert await _ask(idle[-1]) == b"HTTP/1.1 200 OK\r\n"
    assert COUNTS.evicted - before == 91


async def test_a_request_that_is_answered_does_not_make_room():
    arrived, let_go = asyncio.Semaphore(0), asyncio.Event()

    async def wait(scope: Message, receive: Receive, send: Send) -> None:
        arrived.release()
        await let_go.wait()
        await _echo(scope, receive, send)

    before = COUNTS.refused
    async with _serving(Limits(connections=3), wait) as connect:
        answers = [asyncio.create_task(_ask(await connect())) for _ in range(3)]
        for _ in answers:
            await arrived.acquire()
        refused = await _all((await connect())[0])
        assert (refused[:13], b'"code":"OVERLOADED"' in refused) == (b"HTTP/1.1 503 ", True)
        let_go.set()
        assert await asyncio.gather(*answers) == [b"HTTP/1.1 200 OK\r\n"] * 3
    assert COUNTS.refused - before == 1


async def test_idle_connections_of_one_server_make_room_at_another(few_descriptors: int):
    async with _serving(PATIENT) as connect, _serving(PATIENT) as elsewhere:
        idle = await connect()
        assert await _ask(idle) == b"HTTP/1.1 200 OK\r\n"
        with contextlib.ExitStack() as files:
            while (last := os.dup(0)) < few_descriptors * 3 // 4:
                files.callback(os.close, last)
            os.close(last)
            assert await _ask(await elsewhere()) == b"HTTP/1.1 200 OK\r\n"
            await idle[0].readuntil(b"\r\n\r\n")
            assert await _all(idle[0]) == b""


async def test_one_peer_has_no_more_than_its_share():
    async with _serving(Limits(per_peer=3)) as connect:
        mine = [await connect() for _ in range(3)]
        assert (await _ask(await connect())) == b"HTTP/1.1 503 Service Unavailable\r\n"
        mine[0][1].close()
        await mine[0][1].wait_closed()
        for streams in mine[1:]:
            assert await _ask(streams) == b"HTTP/1.1 200 OK\r\n"
        assert await _ask(await connect()) == b"HTTP/1.1 200 OK\r\n"


async def test_the_last_descriptors_are_left_for_files(few_descriptors: int):
    async with _serving(PATIENT) as connect:
        with contextlib.ExitStack() as files:
            last = 0
            while last < few_descriptors * 3 // 4:
                last = os.dup(0)
                files.callback(os.close, last)
            assert await _ask(await connect()) == b"HTTP/1.1 503 Service Unavailable\r\n"
        assert await _ask(await connect()) == b"HTTP/1.1 200 OK\r\n"


async def test_a_limit_that_is_raised_later_is_heeded_by_listeners_that_are_there(few_descriptors: int):
    async with _serving(PATIENT) as connect:
        with contextlib.ExitStack() as files:
            while (last := os.dup(0)) < few_descriptors * 3 // 4:
                files.callback(os.close, last)
            files.callback(os.close, last)
            assert await _ask(await connect()) == b"HTTP/1.1 503 Service Unavailable\r\n"
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (2 * few_descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
            held = await connect()
            assert await _ask(held) == b"HTTP/1.1 200 OK\r\n"
            assert await _ask(await connect()) == b"HTTP/1.1 200 OK\r\n"


async def test_the_client_understands_a_refusal():
    async with _serving(Limits(per_peer=0)) as connect:
        answer = await _all((await connect())[0])
    failure = failure_of(503, answer.partition(b"\r\n\r\n")[2])
    assert (failure.code, failure.retryable) == ("OVERLOADED", True)


async def test_the_server_forgets_every_connection():
    before = COUNTS.open
    async with _serving(Limits(connections=5, per_peer=4)) as connect:
        for _ in range(20):
            await _ask(await connect())
    assert COUNTS.open == before
