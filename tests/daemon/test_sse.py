"""A stream on its own: how it begins, what it says when nothing happens, and when it ends."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from codesdk.contract import events as ev
from codesdk.contract.service import Published
from codesdk.daemon.sse import HEARTBEAT, RETRY, EventStream
from codesdk.engine.log.feed import Feed
from codesdk.store.memory import MemoryLog

pytestmark = pytest.mark.anyio

SOON_S = 0.001


def notice(seq: int, size: int = 0) -> Published:
    payload = ev.RuntimeNotice(kind="warning", message="", details={})
    runtime, trace = ev.RuntimeInfo(name="fake"), ev.Trace(session_id="ses_a")
    event = ev.RuntimeNoticeEvent(
        schema_version=1,
        seq=seq,
        time="",
        trace=trace,
        runtime=runtime,
        payload=payload,
    )
    return Published(seq, b"{%d}" % seq + b" " * size, event)


class Client:
    """The other side of ASGI. It takes what is sent, or nothing while it is stalled."""

    def __init__(
        self, feed: Feed, heartbeat_s: float = 60, welcome: Callable[[], bool] = lambda: True
    ) -> None:
        self.sent: list[bytes] = []
        self.over = False
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.changed = asyncio.Event()
        stream = EventStream(feed, 0, None, heartbeat_s=heartbeat_s, welcome=welcome)
        self.task = asyncio.create_task(stream({"method": "GET"}, self._receive, self._send))

    async def until(self, there: Callable[[], bool]) -> None:
        """Wait until there is what is waited for."""
        while not there():
            self.changed.clear()
            await self.changed.wait()

    async def _receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Any) -> None:
        await self.flowing.wait()
        if message["type"] == "http.response.body":
            self.sent.append(message["body"])
            self.over = not message.get("more_body", False)
        self.changed.set()


async def test_a_stream_says_when_to_come_back_then_every_event_then_nothing_but_that_it_is_there():
    feed = Feed(MemoryLog(), "ses_a", 0)
    client = Client(feed, SOON_S)
    await client.until(lambda: client.sent[:2] == [RETRY, HEARTBEAT])
    feed.publish([notice(1), notice(2)])
    await client.until(lambda: client.sent[-1] == HEARTBEAT and len(client.sent) >= 4)
    assert [data for data in client.sent if data != HEARTBEAT] == [
        RETRY,
        b"id: 1\ndata: {1}\n\nid: 2\ndata: {2}\n\n",
    ]
    feed.close()
    await client.task
    assert client.over


async def test_a_caller_who_is_no_longer_let_in_is_cut_off_even_while_events_flow():
    def answers() -> Iterator[bool]:
        yield from [True, True]
        while True:
            yield False

    feed, asked = Feed(MemoryLog(), "ses_a", 0), answers()
    client = Client(feed, SOON_S, lambda: next(asked))
    while not client.task.done():
        seq = feed.committed + 1
        last = b"id: %d\ndata: {%d}\n\n" % (seq, seq)
        feed.publish([notice(seq)])
        await client.until(lambda last=last: client.over or last in client.sent)
        await asyncio.sleep(0)
    assert client.over
    assert feed.readers == 0


async def test_what_a_stalled_client_has_not_taken_is_not_kept_for_it():
    feed = Feed(MemoryLog(), "ses_a", 0)
    client = Client(feed)
    await client.until(lambda: client.sent == [RETRY])
    client.flowing.clear()
    feed.publish([notice(seq, 1_000) for seq in range(1, 201)])
    await asyncio.sleep(0)
    client.flowing.set()
    await client.until(lambda: len(client.sent) > 1)
    assert len(client.sent[1]) < 70_000, "one write, and no more, was ready"
    await client.until(lambda: b"id: 200\n" in client.sent[-1])
    assert b"".join(client.sent[1:]).count(b"id: ") == 200
    feed.close()
    await client.task
