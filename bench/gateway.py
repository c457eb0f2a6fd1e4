"""The model gateway before a provider, against the provider alone, in turn: what a request and an event take longer.

Provider, gateway and client are a process each, on loopback. Every event says when it was sent, so that its way is
measured and not its pace.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.measure import median, percentile
from bench.table import Report, at_least, at_most, ratio_at_most

_PATH = "/v1/chat/completions"


class Heard(msgspec.Struct):
    """One answer: seconds to its first byte, and for each event when it came and how long it was on its way."""

    first_s: float = 0.0
    came: list[float] = []
    ways_ms: list[float] = []


class Line:
    """A connection to a server that is kept, with no client library between."""

    def __init__(self, peer: "Peer") -> None:
        host, _, path = peer.url.removeprefix("http://").partition("/")
        self._address = host.split(":")
        self._path = f"/{path}" if path else ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, events: int = 0, pause_ms: float = 0) -> Heard:
        """Ask once and hear the answer to its end."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address[0], int(self._address[1]))
        reader, writer = self._streams
        asked = {"model": "m", "stream": events > 0, "messages": [{"role": "user", "content": "x" * 2000}]}
        body = msgspec.json.encode({**asked, "bench": {"events": events, "pause_ms": pause_ms}})
        head = f"POST {self._path}{_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        heard = Heard()
        started = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" in answer.lower():
            await _hear_events(reader, heard, started)
        else:
            length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            heard.first_s = time.perf_counter() - started
        return heard

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def _hear_events(reader: asyncio.StreamReader, heard: Heard, started: float) -> None:
    while size := int(await reader.readline(), 16):
        data = await reader.readexactly(size + 2)
        now = time.monotonic_ns()
        if not heard.came:
            heard.first_s = time.perf_counter() - started
        for piece in data.split(b'"sent":')[1:]:  # what was sent in several pieces may come in one
            heard.came.append(now / 1e9)
            heard.ways_ms.append((now - int(piece.partition(b",")[0])) / 1e6)
    await reader.readline()


class Peer(NamedTuple):
    """The other end, in a process of its own."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """Return the processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def peer(*arguments: str) -> Iterator[Peer]:
    """Run the other end."""
    command = [sys.executable, "-m", "bench.peers", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield Peer(child.stdout.readline().strip(), child.pid)
        finally:
            child.stdin.close()


async def run(report: Report, quick: bool) -> None:
    with (
        peer("provider") as direct,
        peer("gateway", "passthrough", direct.url) as passing,
        peer("gateway", "record", direct.url) as recording,
        peer("gateway", "owned", direct.url) as owning,
    ):
        await _first_bytes(report, direct, passing, 20 if quick else 400)
        await _events(report, direct, passing, recording, 20 if quick else 400)
        await _at_once(report, direct, passing, *((10, 5) if quick else (200, 40)))
        await _rates(report, direct, passing, quick)
        await _acts(report, passing, owning, quick)


async def _first_bytes(report: Report, direct: Peer, passing: Peer, requests: int) -> None:
    report.progress("first byte")
    lines = Line(direct), Line(passing)
    found: tuple[list[float], list[float]] = [], []
    for number in range(requests + 20):
        for line, times in zip(lines, found, strict=True):
            heard = await line.ask(events=1)
            if number >= 20:
                times.append(heard.first_s * 1000)
    alone, through = median(found[0]), median(found[1])
    report.line("first byte, p50", through, "ms", against=("direct", alone))
    report.line("first byte, added", through - alone, "ms", goal=at_most(3))
    p99 = percentile(found[0], 0.99), percentile(found[1], 0.99)
    report.line("first byte, p99", p99[1], "ms", against=("direct", p99[0]))
    _close(*lines)


async def _events(report: Report, direct: Peer, passing: Peer, recording: Peer, events: int) -> None:
    report.progress("events 2 ms apart")
    ways: list[list[float]] = [[], [], []]
    for _ in range(3):
        for found, peer in zip(ways, (direct, passing, recording), strict=True):
            line = Line(peer)
            found += (await line.ask(events, pause_ms=2)).ways_ms[1:]
            _close(line)
    alone, through, recorded = (median(found) for found in ways)
    report.line("an event's way, p50", through, "ms", against=("direct", alone))
    report.line("an event's way, added", through - alone, "ms", goal=at_most(0.5))
    report.line("an event's way, added, recording", recorded - alone, "ms", goal=at_most(0.5))
    p99 = percentile(ways[0], 0.99), percentile(ways[1], 0.99)
    report.line("an event's way, p99", p99[1], "ms", against=("direct", p99[0]))


async def _at_once(report: Report, direct: Peer, passing: Peer, streams: int, events: int) -> None:
    report.progress(f"{streams} streams at once, an event every 100 ms")
    named = f"{streams} streams at once"
    gaps: list[float] = []
    for peer in (direct, passing):
        lines = [Line(peer) for _ in range(streams)]
        heard = await asyncio.gather(*(_later(line, n, streams, events) for n, line in enumerate(lines)))
        lost = streams * events - sum(len(each.came) for each in heard)
        between = [(b - a) * 1000 for each in heard for a, b in pairwise(each.came)]
        gaps.append(percentile(between, 0.99))
        _close(*lines)
        if peer is passing:
            report.line(f"{named}, lost", lost, "events", goal=at_most(0))
    report.line(f"{named}, gap, p99", gaps[1], "ms", against=("direct", gaps[0]), goal=ratio_at_most(1.5))


async def _later(line: Line, number: int, streams: int, events: int) -> Heard:
    """Ask spread over one pause, as clients that do not know of each other do."""
    await asyncio.sleep(0.1 * number / streams)
    return await line.ask(events, pause_ms=100)


async def _rates(report: Report, direct: Peer, passing: Peer, quick: bool) -> None:
    report.progress("as fast as it goes")
    requests, events = (5, 50) if quick else (60, 500)

    async def ask(line: Line) -> int:
        for _ in range(requests):
            await line.ask()
        return requests

    async def stream(line: Line) -> int:
        return len((await line.ask(events)).came)

    for name, work, count, rate, micros in (
        ("requests, 16 connections", ask, 16, 400, 3_000),
        ("events, 200 streams at once", stream, 20 if quick else 200, 5_000, 100),
    ):
        alone = await _rate(direct, work, count)
        through = await _rate(passing, work, count)
        report.line(name, through.rate, "/s", against=("direct", alone.rate), goal=at_least(rate))
        report.line(f"{name}, CPU of the gateway", through.micros, "µs", goal=at_most(micros))


async def _acts(report: Report, passing: Peer, owning: Peer, quick: bool) -> None:
    """Measure what it costs that every request and every event passes the acts of owned tools."""
    report.progress("with tools owned on the wire, and without")
    count, events = (5, 50) if quick else (50, 500)

    async def stream(line: Line) -> int:
        return len((await line.ask(events)).came)

    found: tuple[list[float], list[float]] = [], []
    for _ in range(1 if quick else 3):
        for peer, micros in zip((passing, owning), found, strict=True):
            micros.append((await _rate(peer, stream, count)).micros)
    without, owned = median(found[0]), median(found[1])
    report.line(
        "events, tools owned, CPU of the gateway",
        owned,
        "µs",
        against=("without the acts", without),
        goal=ratio_at_most(3.0),
    )


class _Pace(NamedTuple):
    rate: float
    micros: float


async def _rate(peer: Peer, work: Callable[[Line], Awaitable[int]], count: int) -> _Pace:
    """Return how many a second, and the processor time of the other end for each."""
    lines = [Line(peer) for _ in range(count)]
    await asyncio.gather(*(line.ask() for line in lines))
    started, cpu = time.perf_counter(), peer.cpu_s()
    done = sum(await asyncio.gather(*(work(line) for line in lines)))
    taken, used = time.perf_counter() - started, peer.cpu_s() - cpu
    _close(*lines)
    return _Pace(done / taken, used / done * 1e6)


def _close(*lines: Line) -> None:
    for line in lines:
        line.close()
