"""A task of a real program through CodeSDK, against the same program driven directly: what all that is between takes.

The model is a scripted one in a process of its own; directly it is asked by the program, else by our gateway. The tool
is the same one, served by the same MCP host; directly without policy and log. Both ways are taken in turn. A model that
answers at once shows all that is ours; one that takes time hides what is done meanwhile, as in use.
"""

import gc
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.direct import (
    Addresses,
    Direct,
    DirectClaude,
    DirectCodex,
    DirectGemini,
    DirectOpencode,
    Launch,
    Took,
    overheard,
)
from bench.gateway import peer
from bench.mcp import OpenCalls
from bench.measure import median, resident_bytes, scratch
from bench.table import Report, at_most, ratio_at_most
from codesdk import CodeSDK, Session
from codesdk.contract.errors import TaskFailure
from codesdk.contract.events import TERMINAL_TYPES, TaskCompleted
from codesdk.gateway.providers import Provider
from codesdk.gateway.wires.exchange import Wire
from codesdk.testing.network import alone, can_be_alone
from codesdk.tools.mcp.host import McpHost

_GOAL = 1.05
_SESSION_KB = 250
_WORDS = "Read the file and say what is in it."
_THINKS_S = 0.3
"""How long the model takes to its first word, where it takes time. Real ones take longer."""


def _script(thinks_s: float) -> bytes:
    """Return a task of two requests with a call between them, over and over."""
    wait = [{"delay_s": thinks_s}] if thinks_s else []
    look = [
        {"text": ["I ", "look ", "at ", "it ", "first."]},
        {"call": {"tool": "workspace.read", "input": {"path": "hello.txt"}}},
    ]
    answer = {"text": [f"word {number} " for number in range(20)]}
    turns = [
        {"steps": [*wait, *look], "usage": {"input": 100, "output": 20}},
        {
            "expect": {"tool_result_contains": ["Hello"]},
            "steps": [*wait, answer],
            "usage": {"input": 150, "output": 40},
        },
    ]
    return msgspec.json.encode({"loop": True, "turns": turns})


class Kind(NamedTuple):
    """A program: its runtime, what speaks its protocol here, and how it asks a model."""

    runtime: str
    short: str
    start: Callable[[Launch], Awaitable[Direct]]
    wire: Wire
    model: str


KINDS = (
    Kind("claude-agent-sdk", "claude", DirectClaude.start, "anthropic", "claude-sonnet-4-5"),
    Kind("codex-sdk", "codex", DirectCodex.start, "responses", "gpt-5.5"),
    Kind("gemini-cli-core", "gemini", DirectGemini.start, "gemini", "gemini-2.5-flash"),
    Kind("opencode-server", "opencode", DirectOpencode.start, "chat", "gpt-5.5"),
)


class Both(NamedTuple):
    """The same tasks both ways."""

    ours: list[Took]
    direct: list[Took]


class Place:
    """Both ways to one program."""

    def __init__(self, kind: Kind, sdk: CodeSDK, host: McpHost, path: Path, model: str) -> None:
        self._kind = kind
        self._sdk = sdk
        self._host = host
        self._path = path
        self._model = model
        self._launch: Launch | None = None
        self._number = 0

    async def session(self) -> Session:
        """Create a session of ours."""
        return await self._sdk.create_session(
            runtime=self._kind.runtime,
            workspace=self._path / "workspace",
            model=self._kind.model,
            permission_mode="auto",
        )

    async def listen(self) -> None:
        """Run a task through CodeSDK, and remember how the program was started and what it was told."""
        with overheard() as launches:
            session = await self.session()
            await ours(session)
            await session.close()
        self._launch = launches[-1]

    async def direct(self) -> Direct:
        """Start the program directly."""
        assert self._launch is not None
        self._number += 1
        place = self._path / f"direct-{self._number}"
        place.mkdir()
        tools = await self._host.admit(f"ses_direct_{self._number}", OpenCalls(self._path / "workspace"))
        return await self._kind.start(self._launch.prepare(place, Addresses(self._model, tools)))


async def ours(session: Session, started: float | None = None) -> Took:
    """Run one task through CodeSDK, as an application that reads its events does."""
    started, first = started or time.perf_counter(), 0.0
    task = await session.start(_WORDS)
    async for event in task.events():
        if event.type == "model.output.delta" and not first:
            first = time.perf_counter()
        if event.type in TERMINAL_TYPES:
            assert isinstance(event.payload, TaskCompleted), event.payload
    return Took((first - started) * 1000, (time.perf_counter() - started) * 1000)


async def run(report: Report, quick: bool) -> None:
    if not can_be_alone():
        for kind in KINDS:
            report.missing(
                f"{kind.short}, a task", "needs root and ip: programs run in a network of their own"
            )
        return
    with alone():
        for kind in KINDS:
            try:
                async with _opened(kind, _THINKS_S) as place:
                    await _paced(report, kind.short, place, quick)
                async with _opened(kind, 0) as place:
                    await _at_once(report, kind.short, place, quick)
            except TaskFailure as error:
                if error.code != "RUNTIME_UNAVAILABLE":
                    raise
                report.missing(f"{kind.short}, a task", error.message)


async def _paced(report: Report, name: str, place: Place, quick: bool) -> None:
    report.progress(f"{name}: tasks in a live session")
    _lines(report, f"{name}, next task", await _warm(place, 1 if quick else 15))
    report.progress(f"{name}: first tasks of new sessions")
    _lines(report, f"{name}, first task", await _cold(place, 1 if quick else 7))


async def _at_once(report: Report, name: str, place: Place, quick: bool) -> None:
    report.progress(f"{name}: the same with a model that answers at once")
    _lines(report, f"{name}, next task, model at once", await _warm(place, 1 if quick else 25))
    await _memory(report, name, place, 1 if quick else 8)


@asynccontextmanager
async def _opened(kind: Kind, thinks_s: float) -> AsyncGenerator[Place]:
    with scratch() as path:
        (path / "script.json").write_bytes(_script(thinks_s))
        (path / "workspace").mkdir()
        (path / "workspace" / "hello.txt").write_text("Hello, world\n")
        with peer("scripted", str(path / "script.json")) as model:
            providers: dict[Wire, Provider] = {kind.wire: Provider(origin=model.url, key="key-of-the-bench")}
            async with CodeSDK.open(path / "data", providers=providers) as sdk, McpHost() as host:
                place = Place(kind, sdk, host, path, model.url)
                await place.listen()
                yield place


async def _warm(place: Place, rounds: int) -> Both:
    """Take the tasks of one session in turn with those of one process that is driven directly."""
    session, program = await place.session(), await place.direct()
    found = Both([], [])
    try:
        for number in range(rounds + 1):
            pair = await ours(session), await program.task()
            if number:
                found.ours.append(pair[0])
                found.direct.append(pair[1])
    finally:
        await program.stop()
        await session.close()
    return found


async def _cold(place: Place, rounds: int) -> Both:
    """Take new sessions in turn with new processes, from nothing to the end of the first task."""
    found = Both([], [])
    for _ in range(rounds):
        started = time.perf_counter()
        session = await place.session()
        found.ours.append(await ours(session, started))
        await session.close()
        started = time.perf_counter()
        program = await place.direct()
        ready = (time.perf_counter() - started) * 1000
        took = await program.task()
        found.direct.append(Took(ready + took.first_ms, ready + took.whole_ms))
        await program.stop()
    return found


def _lines(report: Report, name: str, found: Both) -> None:
    for what, field, goal in (("", "whole_ms", ratio_at_most(_GOAL)), (", first delta", "first_ms", None)):
        mine, other = ([getattr(took, field) for took in way] for way in found)
        report.line(f"{name}{what}", median(mine), "ms", against=("direct", median(other)), goal=goal)
        added = median([a - b for a, b in zip(mine, other, strict=True)])
        report.line(f"{name}{what}, our part", added, "ms")


async def _memory(report: Report, name: str, place: Place, count: int) -> None:
    """Measure what sessions with a live program add to our own process."""
    report.progress(f"{name}: {count} sessions at once")
    gc.collect()
    before, sessions = resident_bytes(), list[Session]()
    for _ in range(count):
        sessions.append(await place.session())
        await ours(sessions[-1])
    gc.collect()
    each = (resident_bytes() - before) / count / 1000
    report.line(
        f"{name}, our memory for a live session",
        each,
        "KB",
        goal=at_most(_SESSION_KB),
        note="besides the program's own",
    )
    for session in sessions:
        await session.close()
