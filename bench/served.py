"""The other ends of `streams`: a daemon whose runtime says when it emits, and a bare server of the same events.

`python -m bench.served daemon DIR` and `… bare` print where they listen. What is to be emitted is said by the task's
message, or by the path: so many events, so far apart, all at once if they are not.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import msgspec
import uvloop

from bench.rig import FRAME_BYTES, StreamRuntime
from codesdk import Text
from codesdk.contract.events import OutputCompleted, OutputDelta
from codesdk.contract.messages import text_of
from codesdk.contract.runtime import Draft, Finished, RuntimeItem, TaskInput

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_AT_ONCE = 10


class Order(msgspec.Struct):
    """So many events, so far apart, the first at a moment of the machine's clock."""

    events: int
    interval_s: float = 0
    begin_s: float = 0


async def ticks(order: Order) -> AsyncIterator[int]:
    """Yield at the pace of an order; a tick that is late does not delay those behind it."""
    for number in range(order.events):
        delay = order.begin_s + number * order.interval_s - time.monotonic()
        if delay > 0:
            await asyncio.sleep(delay)
        yield number


async def _stream(task: TaskInput) -> AsyncGenerator[RuntimeItem, None]:
    order = msgspec.json.decode(text_of(task.messages[-1].content), type=Order)
    message_id = f"{task.task_id}.0"
    async for _ in ticks(order):
        delta = f"at {time.monotonic_ns()} "
        yield Draft(
            OutputDelta(kind="text_delta", block_id=f"{message_id}.0", message_id=message_id, delta=delta)
        )
    yield Draft(OutputCompleted(message_id=message_id, content=[Text(text="done")]))
    yield Finished(stop_reason="end_turn")


async def _daemon(data_dir: str) -> None:
    from codesdk.daemon.server import serve
    from codesdk.daemon.settings import DaemonSettings

    settings = DaemonSettings(requests_per_s=None, grace_s=0)
    await serve(Path(data_dir), settings, {"runtimes": {"scripted": StreamRuntime(_stream)}})


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve `GET /v1/sessions/EVENTS,INTERVAL_S,BEGIN_S/events`: the same bytes as ours, with nothing behind them."""
    try:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        events, interval, begin = path.split("/")[3].split(",")
        order = Order(int(events), float(interval), float(begin))
        writer.write(_HEAD)
        waiting: list[bytes] = []
        async for number in ticks(order):
            text = b'"delta":"at %d "' % time.monotonic_ns()
            waiting.append(b"id: %d\ndata: %b\n\n" % (number + 1, text.ljust(FRAME_BYTES)))
            if order.interval_s or len(waiting) == _AT_ONCE or number == order.events - 1:
                data = b"".join(waiting)
                waiting.clear()
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                await writer.drain()
        await reader.read()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _bare() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(f'{{"url": "http://{host}:{port}"}}', flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        uvloop.run(_bare())
    else:
        uvloop.run(_daemon(sys.argv[2]))
