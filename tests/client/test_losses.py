"""Connections break, answers get lost, daemons are killed: a client notices none of it, or says so in plain words."""

import asyncio
import signal
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.client.proxy import proxy
from tests.client.test_client import FOREVER, create
from tests.daemon.rig import Daemon, daemon

from codesdk.client import CodeSDKClient, Unreachable
from codesdk.client.address import Address
from codesdk.client.connection import DaemonConnection
from codesdk.client.stream import EventStream, Parser
from codesdk.contract.errors import Busy, CodeSDKError, Forbidden, NotFound
from codesdk.contract.events import TERMINAL_TYPES
from codesdk.local.tokens import TokenFile

MANY = {"turns": [{"steps": [{"burst": {"count": 2000}}, {"text": "End."}]}], "loop": True}


def answer(status: str, body: bytes = b"", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status.encode(), b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def test_a_task_whose_answer_was_lost_is_started_once(running: Daemon, tmp_path: Path):
    async with proxy(running.url) as between, CodeSDKClient.connect(between.url) as client:
        session = await create(client, tmp_path)
        between.swallow = b"/tasks HTTP/1.1"
        task = await session.start("Go.")
        await task.result()
        assert b"202 Accepted" in between.swallowed[0]
        assert [row.task_id for row in await session.tasks()] == [task.id]
        tries = [
            request for request in between.requests if b"/tasks HTTP/1.1" in request.partition(b"\r\n")[0]
        ]
        assert len([request for request in tries if request.startswith(b"POST")]) == 2


async def test_a_session_whose_removal_was_not_confirmed_is_gone_and_that_is_fine(
    running: Daemon, tmp_path: Path
):
    async with proxy(running.url) as between, CodeSDKClient.connect(between.url) as client:
        session = await create(client, tmp_path)
        between.swallow = b"DELETE "
        await client.delete_session(session.id)
        assert len(between.swallowed) == 1
        with pytest.raises(NotFound):
            await client.delete_session(session.id)


async def test_a_stream_that_is_cut_again_and_again_has_no_gap_and_no_repeat(running: Daemon, tmp_path: Path):
    async with proxy(running.url) as between, CodeSDKClient.connect(between.url) as client:
        session = await create(client, tmp_path, MANY)
        task = await session.start("Go.")
        between.cut_after = 50_000
        between.cut()
        seqs: list[int] = []
        async for event in session.events():
            seqs.append(event.seq)
            if event.type in TERMINAL_TYPES:
                break
        streams = [request for request in between.requests if b"text/event-stream" in request]
        between.cut_after = None
        assert seqs == list(range(1, await session.service.head(session.id) + 1))
        assert (await task.result()).text.endswith("End.")
        assert len(streams) > 5


async def test_a_connection_that_falls_silent_is_given_up_and_replaced(running: Daemon, tmp_path: Path):
    async with CodeSDKClient.connect(running.url) as client:
        session = await create(client, tmp_path)
        await (await session.start("Go.")).result()
        head = await session.service.head(session.id)
    async with proxy(running.url) as between:
        connection = DaemonConnection(lambda: Address(between.url, None))
        between.mute = True
        stream = EventStream(connection, f"/v1/sessions/{session.id}/events", 0, silence_s=0.2)
        reading = asyncio.create_task(_read_to(stream, head))
        async with between.asked:
            await between.asked.wait_for(lambda: len(between.requests) == 2)  # the first one was given up
        between.mute = False
        assert await reading == list(range(1, head + 1))
        await connection.close()


async def _read_to(stream: EventStream, head: int) -> list[int]:
    seqs: list[int] = []
    async with aclosing(stream.batches()) as batches:
        async for batch in batches:
            seqs += [frame.seq for frame in batch]
            if seqs[-1] == head:
                break
    return seqs


async def test_a_stream_survives_a_daemon_that_is_killed_and_started_again_at_the_same_port(tmp_path: Path):
    seqs: list[int] = []
    with daemon(tmp_path / "data") as first:
        async with CodeSDKClient.connect(first.url) as client:
            session = await create(client, tmp_path, FOREVER)
            await session.start("Go.")
            async with aclosing(session.events()) as events:
                async for event in events:
                    seqs.append(event.seq)
                    if event.type == "model.output.delta":
                        break
                first.stop(signal.SIGKILL)
                with daemon(tmp_path / "data", "--port", first.url.rpartition(":")[2]):
                    async for event in events:
                        seqs.append(event.seq)
                        if event.type in TERMINAL_TYPES:
                            assert event.type == "task.failed"
                            assert event.payload.error.code == "INTERRUPTED"
                            second = await session.start("Again.")
                        if event.type == "model.output.delta":
                            break
                    await second.stop()
                    assert (await second.result()).state == "stopped"
            assert seqs == list(range(1, len(seqs) + 1))


async def test_a_daemon_that_comes_back_elsewhere_is_found_through_its_data_directory(tmp_path: Path):
    with daemon(tmp_path / "data", "--require-token") as first:
        async with CodeSDKClient.connect(data_dir=tmp_path / "data") as client:
            session = await create(client, tmp_path)
            await (await session.start("Go.")).result()
            head = await session.service.head(session.id)
            async with aclosing(session.events()) as events:
                seqs = [(await anext(events)).seq for _ in range(head)]
                first.stop()
                with daemon(tmp_path / "data", "--require-token") as second:
                    assert second.url != first.url
                    task = await session.start("Again.")
                    async for event in events:
                        seqs.append(event.seq)
                        if event.trace.task_id == task.id and event.type in TERMINAL_TYPES:
                            break
                    assert (seqs, client.connection.url) == (list(range(1, len(seqs) + 1)), second.url)


async def test_a_request_is_made_again_when_the_daemon_wants_it_later(running: Daemon, tmp_path: Path):
    async with proxy(running.url) as between, CodeSDKClient.connect(between.url) as client:
        between.canned = [
            answer("503 Service Unavailable", b"<html>", b"retry-after: 0"),
            answer("429 Too Many Requests", _problem(429, "RATE_LIMITED"), b"retry-after: 0"),
        ]
        session = await create(client, tmp_path)
        assert await session.service.head(session.id) > 0
        tries = [request for request in between.requests if request.startswith(b"POST /v1/sessions ")]
        keys = {line for request in tries for line in request.split(b"\r\n") if b"dempotency" in line}
        assert (len(tries), len(keys)) == (3, 1)


async def test_a_refusal_that_will_not_change_is_not_tried_again(running: Daemon, tmp_path: Path):
    async with proxy(running.url) as between, CodeSDKClient.connect(between.url) as client:
        for status, code, kind in (
            ("429 Too Many Requests", "QUEUE_FULL", Busy),
            ("403 Forbidden", "FORBIDDEN", Forbidden),
            ("507 Insufficient Storage", "STORAGE_FAILED", CodeSDKError),
            ("500 Internal Server Error", "A_CODE_OF_TOMORROW", CodeSDKError),
        ):
            between.requests.clear()
            between.canned = [answer(status, _problem(int(status[:3]), code))]
            with pytest.raises(kind, match=r"No\."):
                await client.whoami()
            assert len(between.requests) == 1


async def test_a_stream_ends_with_the_error_of_a_token_that_was_revoked(tmp_path: Path):
    secret, token = TokenFile(tmp_path / "data").add("ann", ["read", "run"])
    with daemon(tmp_path / "data", "--require-token") as running:
        async with proxy(running.url) as between, CodeSDKClient.connect(between.url, secret) as client:
            session = await create(client, tmp_path)
            events = session.events()
            assert (await anext(events)).seq == 1
            TokenFile(tmp_path / "data").revoke(token.token_id)
            between.cut()
            with pytest.raises(Forbidden) as caught:
                await anext(events)
            assert caught.value.code == "AUTH_REQUIRED"


async def test_patience_ends_with_the_address_that_was_tried(running: Daemon):
    async with proxy(running.url) as between:
        connection = DaemonConnection(lambda: Address(between.url, None), patience_s=0.3)
        between.upstream = 1
        with pytest.raises(Unreachable, match=between.url):
            await connection.get("/v1/health", dict)
        assert len(between.requests) == 0
        await connection.close()


def test_server_sent_events_come_out_whole_however_they_are_cut():
    data = b"retry: 1000\n\n: still here\n\nid: 4\ndata: {}\n\nid: 5\r\ndata: a\r\ndata: b\r\n\r\nid: x\ndata: 1\n\ndata: 2\n\n"
    wanted = [(4, b"{}"), (5, b"a\nb")]
    for size in (1, 2, 7, len(data)):
        parser = Parser()
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert [(item.seq, item.frame) for piece in pieces for item in parser.feed(piece)] == wanted


def _problem(status: int, code: str) -> bytes:
    retryable = str(status == 429).lower()
    return (
        f'{{"type":"urn:x","title":"x","status":{status},"detail":"No.","code":"{code}","retryable":{retryable}}}'
    ).encode()
