"""One small agent behind two daemons in turn: ours, which stores each event before it shows it, and sandbox-agent, which keeps nothing.

The agent (`agent.c`) speaks the Agent Client Protocol and numbers what it says. One client reads both streams of
events over a plain socket and takes the numbers out of them, so what is lost is known. Processor time and memory are
those of the daemon alone. All of it happens in a network that has only loopback.
"""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.daemons import Caller, Served, bytecode, served
from bench.measure import median, scratch
from bench.table import Report, at_most, ratio_at_least, ratio_at_most
from codesdk.testing.network import alone, can_be_alone

RIVAL = "sandbox-agent"
_SOURCE = Path(__file__).parent / "agent.c"
_PACKAGES = Path(__file__).parents[1] / "node_modules" / "@sandbox-agent"
_RIVAL_PORT = 2468
_READY_S = 10.0
_QUIET_S = 2.0
"""After so long without a word, once the turn is over, a stream has said what it will: even its end may be lost."""
_TURN_S = 120.0
_KEY = {"OPENAI_API_KEY": "the agent has no model"}
_ROW = {"wire": "chat", "model": "none", "lists_tools": False}


async def run_forwarding(report: Report, quick: bool) -> None:
    """Measure bursts through both daemons, and say what is missing if that cannot be done."""
    name = "a burst of an agent over ACP"
    if not can_be_alone():
        report.missing(name, "programs of others are started only without a network, which needs root and ip")
        return
    if shutil.which("cc") is None:
        report.missing(name, "there is no C compiler, which makes the agent")
        return
    with scratch() as root, bytecode(root), alone():
        agent = _compiled(root)
        with _ours(root) as daemon:
            ours = Ours(daemon, agent, root)
            binary = next(_PACKAGES.glob("cli-*/bin/sandbox-agent"), None)
            if binary is None:
                report.missing(f"{name}, {RIVAL}", "it is not installed: npm ci")
                await _measure(report, [ours], quick)
                return
            with _rival(binary, agent, root) as rival:
                await _measure(report, [ours, Rival(rival, root)], quick)


# --- what is measured -----------------------------------------------------------------------------------


class Burst(NamedTuple):
    """What came of one prompt."""

    rate: float
    micros: float
    lost: int


class Side(Protocol):
    """A daemon with one session of the agent in it."""

    daemon: Served

    async def open(self) -> None: ...

    async def reader(self) -> "Reader":
        """Return a reader of the session's stream, behind all that was said before."""
        ...

    async def prompt(self, count: int, first: int) -> None:
        """Ask for so many words, numbered from a number on."""
        ...


async def _measure(report: Report, sides: list[Side], quick: bool) -> None:
    count, rounds = (2_000, 1) if quick else (20_000, 5)
    report.progress(f"{count:,} events of the agent, {rounds} times in turn")
    found: list[list[Burst]] = [[] for _ in sides]
    for side in sides:
        await side.open()
        await _burst(side, count, 0)
    for number in range(rounds):
        for side, bursts in zip(sides, found, strict=True):
            bursts.append(await _burst(side, count, (number + 1) * count))
    _tell(report, f"ACP agent, burst of {count:,}", sides, found)


def _tell(report: Report, name: str, sides: list[Side], found: list[list[Burst]]) -> None:
    rates = [median([one.rate for one in bursts]) for bursts in found]
    micros = [median([one.micros for one in bursts]) for bursts in found]
    lost = [sum(one.lost for one in bursts) for bursts in found]
    held = [side.daemon.resident_mb() for side in sides]

    def against(figures: list[float]) -> tuple[str, float] | None:
        return (RIVAL, figures[1]) if len(figures) > 1 else None

    compared = len(sides) > 1
    goal = ratio_at_least(1.5) if compared else None
    report.line(name, rates[0], "/s", against=against(rates), goal=goal)
    report.line(f"{name}, lost", lost[0], "events", against=against([*map(float, lost)]), goal=at_most(0))
    goal = ratio_at_most(0.6) if compared else None
    report.line(f"{name}, CPU per event", micros[0], "µs", against=against(micros), goal=goal)
    report.line(f"{name}, memory after it", held[0], "MB", against=against(held))


async def _burst(side: Side, count: int, first: int) -> Burst:
    """Hear one turn. Its words have numbers of their own, so that those of an earlier one are not taken for them."""
    reader = await side.reader()
    cpu, started = side.daemon.cpu_s(), time.perf_counter()
    asked = asyncio.create_task(side.prompt(count, first))
    async with asyncio.timeout(_TURN_S):
        await reader.hear(asked)
        await asked
    used = side.daemon.cpu_s() - cpu
    reader.close()
    seen = sum(first <= int(number) < first + count for number in reader.seen)
    return Burst(seen / (reader.last - started), used / max(seen, 1) * 1e6, count - seen)


class Reader:
    """Reads a stream of events and keeps the numbers of the words in it. `certain`: the end of a turn always comes."""

    def __init__(
        self, place: tuple[str, int], path: str, word: re.Pattern[bytes], end: bytes, *, certain: bool
    ) -> None:
        self.seen: set[bytes] = set()
        self.last = 0.0
        """When the last word came."""
        self._place = place
        self._path = path
        self._word = word
        self._end = end
        self._certain = certain
        self._rest = b""

    async def open(self, head: str = "") -> "Reader":
        self._reader, self._writer = await asyncio.open_connection(*self._place, limit=1 << 20)
        asked = f"GET {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n{head}\r\n"
        self._writer.write(asked.encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return self

    async def hear(self, over: asyncio.Task[None]) -> None:
        """Read to the end of the turn; if that does not come although the turn is `over`, until nothing more does."""
        ended = False
        while not ended:
            try:
                data = await asyncio.wait_for(self._reader.read(1 << 16), _QUIET_S)
            except TimeoutError:
                if over.done() and not self._certain:
                    return
                continue
            # Both servers write whole events, so the sizes between them are outside of what is looked for.
            whole, _, self._rest = (self._rest + data).rpartition(b"\n\n")
            words = self._word.findall(whole)
            if words:
                self.seen.update(words)
                self.last = time.perf_counter()
            ended = not data or self._end in whole

    def close(self) -> None:
        self._writer.transport.abort()


# --- ours -----------------------------------------------------------------------------------------------


@contextmanager
def _ours(root: Path) -> Iterator[Served]:
    before = dict(os.environ)
    os.environ.update(_KEY)
    try:
        with served("--data-dir", str(root / "data"), "--allow-agent-commands") as daemon:
            yield daemon
    finally:
        os.environ.clear()
        os.environ.update(before)


class Ours:
    """CodeSDK's daemon, with the agent as a command of its runtime `acp`."""

    def __init__(self, daemon: Served, agent: Path, root: Path) -> None:
        self.daemon = daemon
        self._caller = Caller(daemon, root)
        self._settings = {"runtime_config": {"command": [str(agent)], "row": _ROW}}
        self._workspace = str(root)
        self._session = ""

    async def open(self) -> None:
        body = {"runtime": "acp", "workspace": self._workspace, "settings": self._settings}
        self._session = (await self._caller.ask("POST", "/v1/sessions", body))["session_id"]

    async def reader(self) -> Reader:
        tasks = (await self._caller.ask("GET", f"/v1/sessions/{self._session}/tasks"))["tasks"]
        seq = tasks[0]["ended_seq"] if tasks else 0
        word, end = re.compile(rb'"delta":"word(\d{8}) "'), b'"type":"task.completed"'
        path = f"/v1/sessions/{self._session}/events"
        reader = Reader(self.daemon.place, path, word, end, certain=True)
        return await reader.open(f"last-event-id: {seq}\r\n")

    async def prompt(self, count: int, first: int) -> None:
        await self._caller.start(self._session, f"burst:{count}:{first}")


# --- the other one --------------------------------------------------------------------------------------


@contextmanager
def _rival(binary: Path, agent: Path, root: Path) -> Iterator[Served]:
    """Run sandbox-agent with ours in the place of the agent that it brings for tests: it knows a fixed list of them."""
    home = root / "home"
    agents = home / ".local" / "share" / RIVAL / "bin" / "agent_processes"
    agents.mkdir(parents=True)
    shutil.copy(agent, agents / "mock-acp")
    program = shutil.copy(binary, root / RIVAL)  # npm leaves it without the right to be run
    Path(program).chmod(0o700)
    command = [str(program), "server", "--no-token", "--no-telemetry", "--port", str(_RIVAL_PORT)]
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    quiet = subprocess.DEVNULL
    started = time.perf_counter()
    with subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet, text=True) as process:
        try:
            _wait_for(_RIVAL_PORT)
            ready_ms = (time.perf_counter() - started) * 1000
            yield Served(process, f"http://127.0.0.1:{_RIVAL_PORT}", ready_ms)
        finally:
            process.terminate()
            process.wait(60)


def _wait_for(port: int) -> None:
    until = time.monotonic() + _READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


class Rival:
    """sandbox-agent: it passes on what is posted, and streams what the agent says."""

    _PATH = "/v1/acp/bench"

    def __init__(self, daemon: Served, root: Path) -> None:
        self.daemon = daemon
        self._caller = Caller(daemon, root)
        self._cwd = str(root)
        self._number = 0
        self._said = 0

    async def open(self) -> None:
        await self._ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        await self._ask("session/new", {"cwd": self._cwd, "mcpServers": []})

    async def reader(self) -> Reader:
        word, end = re.compile(rb'"text":"word(\d{8}) "'), b'"stopReason"'
        reader = Reader(self.daemon.place, self._PATH, word, end, certain=False)
        return await reader.open(f"last-event-id: {self._said}\r\n")

    async def prompt(self, count: int, first: int) -> None:
        words = {"type": "text", "text": f"burst:{count}:{first}"}
        await self._ask("session/prompt", {"sessionId": "one", "prompt": [words]})
        self._said += count

    async def _ask(self, method: str, params: dict[str, object]) -> None:
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        answer = await self._caller.ask("POST", f"{self._PATH}?agent=mock", body)
        assert "result" in answer, answer
        self._said += 1


def _compiled(root: Path) -> Path:
    agent = root / "agent"
    subprocess.run(["cc", "-O2", "-o", str(agent), str(_SOURCE)], check=True)
    return agent
