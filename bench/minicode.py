"""A turn of minicode with one tool call, against bare requests with the same bodies and against other agents' loops.

The model is a scripted one in processes of their own, so that its work is not counted, and it answers at once, so that
nothing of ours hides behind it. What minicode sends is overheard once; the bare loop sends that, and the official
clients' runners go on from the same conversation. All take turns.
"""

import gc
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from bench.gateway import peer
from bench.loops import (
    KEY,
    WORDS,
    NotThere,
    Request,
    Took,
    Turn,
    anthropic_runner,
    bare,
    mini_swe_agent,
    openai_runner,
    timed,
)
from bench.measure import median, resident_bytes, scratch
from bench.table import Report
from codesdk import CodeSDK, Session
from codesdk.contract.messages import Message, Text, ToolResult, ToolUse, user
from codesdk.gateway.providers import Provider
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Ask, Codec
from codesdk.minicode import Minicode, create_minicode
from codesdk.minicode.models import PROVIDERS
from codesdk.minicode.storage import FsSessionRepository
from codesdk.minicode.types import ProviderId, SessionState
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object

_LATE = 1_000
_OLD = "the-long-one"


class Runner(Protocol):
    """An official client's own loop, as `bench.loops` has them."""

    def __call__(
        self, url: str, asked: Sequence[Request], file: Path
    ) -> AbstractAsyncContextManager[Turn]: ...


class Family(NamedTuple):
    """A provider with an official client that has an agent loop. The window of the model is one that 1,000 turns do not fit."""

    provider: ProviderId
    model: str
    key: str
    address: str
    runner: Runner


FAMILIES = (
    Family("anthropic", "claude-sonnet-4-5", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", anthropic_runner),
    Family("openai", "gpt-4o", "OPENAI_API_KEY", "OPENAI_BASE_URL", openai_runner),
)


def _script(tool: str, arguments: dict[str, str], ends_with: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a turn of two requests with a call between them, over and over."""
    look = [{"text": ["I ", "look ", "at ", "it ", "first."]}, {"call": {"tool": tool, "input": arguments}}]
    answer = [{"text": [f"word {number} " for number in range(20)]}, *([ends_with] if ends_with else [])]
    turns = [
        {"steps": look, "usage": {"input": 100, "output": 20}},
        {
            "expect": {"tool_result_contains": ["Hello"]},
            "steps": answer,
            "usage": {"input": 150, "output": 40},
        },
    ]
    return {"loop": True, "turns": turns}


_READ = _script("read", {"file_path": "hello.txt"})
_ENGINE = _script("workspace.read", {"path": "hello.txt"})
_SHELL = _script("bash", {"command": "look"}, {"call": {"tool": "bash", "input": {"command": "submit"}}})
"""mini-swe-agent knows only commands, and ends with one."""


class Place:
    """A directory with a workspace, homes and scripts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workspace = path / "workspace"
        self.workspace.mkdir()
        self.file = self.workspace / "hello.txt"
        self.file.write_text("Hello, world\n")

    @contextmanager
    def model(self, name: str, script: dict[str, Any]):
        """Serve a script from another process. Yield its address."""
        file = self.path / f"{name}.json"
        file.write_bytes(msgspec.json.encode(script))
        with peer("scripted", str(file)) as served:
            yield served.url

    async def minicode(self, family: Family, url: str, home: str) -> Minicode:
        """Return minicode alone, as somebody has it who has set a few variables."""
        place = self.path / f"{home}-{family.provider}"
        env = {
            "HOME": str(place),
            "PATH": "/usr/bin:/bin",
            "MINICODE_CONFIG_DIR": str(place / "config"),
            "MINICODE_SESSIONS_DIR": str(place / "sessions"),
            "MINICODE_ARTIFACTS_DIR": str(place / "artifacts"),
            "MINICODE_PROVIDER": family.provider,
            "MINICODE_MODEL": family.model,
            family.key: KEY,
            family.address: url + PROVIDERS[family.provider].path,
        }
        return await create_minicode(cwd=self.workspace, env=env)

    async def write_long_session(self, agent: Minicode, family: Family, turns: int) -> None:
        """Store a session that has had so many turns, in the file that minicode would have written."""
        messages = [message for number in range(turns) for message in _old_turn(number)]
        state = SessionState(
            id=_OLD,
            cwd=str(self.workspace.resolve()),
            created_at=1,
            updated_at=1,
            provider=family.provider,
            model=family.model,
            messages=messages,
        )
        await FsSessionRepository(Path(agent.config.paths.sessions)).create(state)


def _old_turn(number: int) -> list[Message]:
    call = f"call_{number}"
    step: list[Any] = [
        Text(text="I look at it first."),
        ToolUse(tool_call_id=call, name="read", input={"file_path": f"src/module_{number}.py"}),
    ]
    answer = "The module has what was asked for, and a test that shows it. " * 4
    return [
        user(f"{number}: {WORDS} " + "It should be as the others are. " * 4),
        Message(role="assistant", content=step, message_id=f"{_OLD}.{4 * number}"),
        Message(role="tool", content=[ToolResult(tool_call_id=call, result="a line of source code\n" * 50)]),
        Message(role="assistant", content=[Text(text=answer)], message_id=f"{_OLD}.{4 * number + 2}"),
    ]


class _Overhearing:
    """A scripted model that keeps what it was asked."""

    def __init__(self) -> None:
        self._model = ScriptedModel(parse_object(_READ, "bench"))
        self.asked: list[Request] = []

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        self.asked.append(Request(request.path, request.body))
        return await self._model.answer(codec, ask, request)

    async def list_models(self, codec: Codec, request: RawRequest) -> None:
        """Answer nothing."""


async def run(report: Report, quick: bool) -> None:
    rounds = 1 if quick else 25
    with scratch() as path:
        place = Place(path)
        with place.model("read", _READ) as url:
            for family in FAMILIES:
                await _first(report, place, family, url, rounds)
                await _late(report, place, family, url, rounds)
            await _memory(report, place, url, 5 if quick else 300)
        await _engine(report, place, rounds)


# --- turns --------------------------------------------------------------------------------------------


async def _first(report: Report, place: Place, family: Family, url: str, rounds: int) -> None:
    """Measure the first turns of new sessions, each with new connections, in turn with those of the others."""
    report.progress(f"{family.provider}: first turns")
    asked = await _overheard(place, family)
    found: dict[str, list[Took]] = {"minicode": [], "bare": [], "runner": [], "rival": []}
    rival = _rival(report, place) if family.provider == "anthropic" else _nobody()
    async with await place.minicode(family, url, "home") as agent, rival as swe:
        for number in range(rounds + 1):
            for name, opened in (
                ("minicode", _session(agent, None)),
                ("bare", bare(url, asked, place.file)),
                ("runner", family.runner(url, asked, place.file)),
            ):
                async with opened as turn:
                    _note(found[name], number, await turn())
            if swe is not None:
                _note(found["rival"], number, await swe())
        opening = [await timed(agent.open_session) for _ in range(rounds)]
    report.line(f"{family.provider}, a session opened, CPU", median([took.cpu_ms for took in opening]), "ms")
    _lines(report, family, "turn 1", found)


async def _late(report: Report, place: Place, family: Family, url: str, rounds: int) -> None:
    """Measure the turns from the thousandth on of one open session, in turn with the same requests of the others."""
    report.progress(f"{family.provider}: turns from {_LATE:,} on")
    asked = await _overheard(place, family, _OLD)
    found: dict[str, list[Took]] = {"minicode": [], "bare": [], "runner": []}
    async with await place.minicode(family, url, "old") as agent, AsyncExitStack() as stack:
        await place.write_long_session(agent, family, _LATE - 1)
        turns = {
            "minicode": await stack.enter_async_context(_session(agent, _OLD)),
            "bare": await stack.enter_async_context(bare(url, asked, place.file)),
            "runner": await stack.enter_async_context(family.runner(url, asked, place.file)),
        }
        for number in range(rounds + 1):
            for name, turn in turns.items():
                _note(found[name], number, await turn())
    _lines(report, family, f"turn {_LATE:,}", found)
    sent = sum(len(request.body) for request in asked) / 1000
    report.line(f"{family.provider}, turn {_LATE:,}, sent in its two requests", sent, "KB")


def _note(found: list[Took], number: int, took: Took) -> None:
    if number:  # the first of each is for imports and caches
        found.append(took)


async def _overheard(place: Place, family: Family, session_id: str | None = None) -> list[Request]:
    """Return the requests of a turn, of a new session or of the long one."""
    heard = _Overhearing()
    async with Gateway() as gateway, await place.minicode(family, gateway.admit(heard), "overheard") as agent:
        if session_id is not None:
            await place.write_long_session(agent, family, _LATE - 1)
        async with _session(agent, session_id) as turn:
            await turn()
    assert len(heard.asked) == 2, len(heard.asked)
    return heard.asked


@asynccontextmanager
async def _session(agent: Minicode, session_id: str | None) -> AsyncGenerator[Turn]:
    async with await agent.open_session(id=session_id, create_if_missing=session_id is None) as session:

        async def turn() -> None:
            sent = session.send(WORDS)
            async for _ in sent.events:
                pass
            response = await sent.response
            assert response.text.startswith("word 0"), response

        yield lambda: timed(turn)


@asynccontextmanager
async def _rival(report: Report, place: Place) -> AsyncGenerator[Turn | None]:
    """mini-swe-agent, or nobody if it cannot be had here: then the report has why."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(place.model("shell", _SHELL))
        try:
            turn = await stack.enter_async_context(mini_swe_agent(url, place.file, place.path))
            await turn()  # whether it works at all; most of its imports happen here, too
        except NotThere as error:
            for what in ("CPU", "wall"):
                report.missing(f"anthropic, turn 1, {what}, beside mini-swe-agent", str(error))
            turn = None
        yield turn


@asynccontextmanager
async def _nobody() -> AsyncGenerator[None]:
    yield None


def _lines(report: Report, family: Family, when: str, found: dict[str, list[Took]]) -> None:
    others = (("runner", "its runner", "the client's tool runner"), ("rival", *["mini-swe-agent"] * 2))
    for what, field in (("CPU", "cpu_ms"), ("wall", "wall_ms")):
        took = {name: [getattr(each, field) for each in all_] for name, all_ in found.items()}
        name, ours = f"{family.provider}, {when}, {what}", median(took["minicode"])
        report.line(name, ours, "ms", against=("bare httpx2", median(took["bare"])))
        added = [mine - other for mine, other in zip(took["minicode"], took["bare"], strict=True)]
        report.line(f"{name}, our part", median(added), "ms")
        for side, short, called in others:
            if took.get(side):
                report.line(f"{name}, beside {short}", ours, "ms", against=(called, median(took[side])))


# --- memory, and the runtime ----------------------------------------------------------------------------


async def _memory(report: Report, place: Place, url: str, count: int) -> None:
    """Measure what open sessions with one turn add, then what as many clients add that have run their loop once."""
    family = FAMILIES[0]
    asked = await _overheard(place, family)
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(await place.minicode(family, url, "many"))
        each: list[float] = []
        for name in ("sessions", "clients"):
            report.progress(f"{count} open {name}")
            # Both stay open to the end, so that the second finds no room that the first left.
            for number in range(count + 3):
                if number == 3:
                    gc.collect()
                    before = resident_bytes()
                opened = (
                    _session(agent, None) if name == "sessions" else family.runner(url, asked, place.file)
                )
                await (await stack.enter_async_context(opened))()
            gc.collect()
            each.append((resident_bytes() - before) / count / 1000)
        report.line(
            f"{count} open sessions, RSS each", each[0], "KB", against=("a client for each loop", each[1])
        )


async def _engine(report: Report, place: Place, rounds: int) -> None:
    """Measure tasks of the runtime, with policy, log and the exact input through the gateway: first ones, and late ones."""
    with place.model("engine", _ENGINE) as url:
        providers: Any = {"anthropic": Provider(origin=url, key=KEY)}
        # The same script, played without a model: how a session came to its age does not count.
        runtimes = {"scripted": ScriptedRuntime(parse_object(_ENGINE, "bench"))}
        async with CodeSDK.open(place.path / "data", providers=providers, runtimes=runtimes) as sdk:
            report.progress(f"{_LATE - 1:,} tasks in a session of the runtime")
            old = await _new_session(sdk, place, "scripted")
            for _ in range(_LATE - 1):
                await _task(old)
            await old.move("minicode", model=FAMILIES[0].model)
            report.progress("its next ones, in turn with first tasks of others")
            first: list[Took] = []
            late: list[Took] = []
            for number in range(rounds + 1):
                young = await _new_session(sdk, place, "minicode")
                _note(first, number, await timed(partial(_task, young)))
                await young.close()
                _note(late, number, await timed(partial(_task, old)))
    for what, field in (("CPU", "cpu_ms"), ("wall", "wall_ms")):
        took, beside = (median([getattr(each, field) for each in found]) for found in (late, first))
        report.line(f"runtime minicode, task 1, {what}", beside, "ms")
        report.line(f"runtime minicode, task {_LATE:,}, {what}", took, "ms", against=("at task 1", beside))


async def _new_session(sdk: CodeSDK, place: Place, runtime: str) -> Session:
    return await sdk.create_session(
        runtime=runtime, workspace=place.workspace, model=FAMILIES[0].model, permission_mode="auto"
    )


async def _task(session: Session) -> None:
    task = await session.start(WORDS)
    async for _ in task.events():
        pass
    result = await task.result()
    assert result.text.startswith("word 0"), result
