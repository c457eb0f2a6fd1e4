"""What is recorded as a task's input is what the model is then sent: on the real programs, for every strategy and budget."""

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.counts import COUNTS
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import PROGRAMS
from tests.runtimes.reading import MODELS

from codesdk import CodeSDK, CodeSDKError, Session, SessionSettings
from codesdk.contract.codec import decode
from codesdk.contract.events import ModelInput, SessionCompacted
from codesdk.contract.messages import Message
from codesdk.contract.runtime import Host, RuntimeTask, TaskInput
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes.acp import ROWS
from codesdk.runtimes.scripted import NAME as SCRIPTED
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object

AMPLE_ROOM, LITTLE_ROOM, TOO_LARGE = "ample room", "little room", "too large"
_LISTED_ONCE = (
    "vibe keeps the list of a server's tools by its address and does not ask for it again in a second session, so our"
    " wait for that ends the task"
)
EXCLUDED: dict[tuple[str, str], str] = {
    ("acp:qwen", TOO_LARGE): (
        "qwen sums the conversation up by itself when it is too large, and asks again: no task fails"
    ),
    ("acp:vibe", LITTLE_ROOM): _LISTED_ONCE,
    ("acp:vibe", TOO_LARGE): _LISTED_ONCE,
}
"""What does not hold for an agent, and why. It is tried all the same, so that a change is noticed."""
NOT_LOADED = frozenset({"acp:kilo", "acp:opencode", "acp:vibe"})
"""Those that do not load a session again whose last turn the model refused. They are told everything instead."""
ADDS_MESSAGES = frozenset({"acp:qwen"})
"""Those that put more than a small budget into the conversation by themselves: qwen tells its model of its skills."""
MARK = re.compile(r"<[QARS]\d?\w*>")
"""Each message has a mark of its own; the result of the tool has one at its beginning and one at its end."""
READ: dict[str, Any] = {"call": {"tool": "workspace.read", "input": {"path": "long.txt"}, "id": "r1"}}
LONG = "<Rbegin>\n" + "a line of the file\n" * 400 + "<Rend>\n"
FILLING = "x" * 600
AMPLE, TIGHT = 100_000, 1_000
AGENTS = {f"acp:{name}": known.row.model for name, known in ROWS.items() if f"acp:{name}" in PROGRAMS}
"""The agents of the Agent Client Protocol, each with the model that its row names."""
ASKED = (AGENTS if COUNTS.whole_matrix else {}) | MODELS
"""Those that are compared in this run: in a soak all of them, since a start takes seconds."""
KEEPERS = ASKED.keys() - {"minicode"}
"""Those that keep a copy of the conversation, and are told what is new. The other one is told everything each time."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def answers(*texts: str | list[Any]) -> Any:
    turns = [[{"text": text}] if isinstance(text, str) else text for text in texts]
    return parse_object({"turns": [{"steps": steps} for steps in turns]}, "the test")


def tried(case: str) -> list[Any]:
    """Return the runtimes of this run, those that are excluded as ones that must fail."""
    marks = {
        name: [pytest.mark.xfail(reason=reason, strict=True)]
        for (name, excluded), reason in EXCLUDED.items()
        if excluded == case
    }
    return [pytest.param(name, marks=marks.get(name, [])) for name in sorted(ASKED)]


class Story:
    """A session of a real program, and what is known of its requests."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self.folder = folder
        self.runtime = runtime
        self.number = 0
        self.sent: set[str] = set()
        self._id = ""
        self._seen = 0
        workspace = folder / "workspace"
        workspace.mkdir()
        (workspace / "long.txt").write_text(LONG)

    async def begin(self, sdk: CodeSDK, budget: int, *turns: str | list[Any]) -> Session:
        """Create the session. Its model answers with these turns."""
        session = await sdk.create_session(
            runtime=self.runtime,
            workspace=self.folder / "workspace",
            model=ASKED[self.runtime],
            permission_mode="auto",
            plays=answers(*turns),
            settings=SessionSettings(context_budget_tokens=budget),
        )
        self._id = session.id
        return session

    async def go_on(self, sdk: CodeSDK, *turns: str | list[Any]) -> Session:
        """Open the session again in another process."""
        return await sdk.session(self._id, plays=answers(*turns))

    async def turn(self, sdk: CodeSDK, session: Session) -> str:
        """Have one task answered, compare its record with its requests, and return the strategy."""
        self.number += 1
        await (await session.start(f"<Q{self.number}> {FILLING}")).result()
        return await self.compare(sdk, session)

    async def compare(self, sdk: CodeSDK, session: Session) -> str:
        """Compare what was compiled with each exact request that followed it."""
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        new, self._seen = events[self._seen :], len(events)
        transcript = await session.transcript()
        wanted: set[str] = set()
        strategy = ""
        for event in new:
            payload = event.payload
            if isinstance(payload, ModelInput) and payload.capture == "compiled":
                strategy = payload.context_window.strategy
                wanted = await self._wanted(sdk, payload, transcript)
            elif isinstance(payload, ModelInput):
                assert payload.context_window.strategy == strategy
                assert (payload.context_window.overhead_tokens or 0) > 0
                told = json.dumps(await self._conversation(sdk, payload))
                found = MARK.findall(told)
                assert sorted(found) == sorted(set(found)), "each is told once"
                calls = (
                    {"<Rbegin>", "<Rend>"} if "<Rbegin>" in found and "<Rbegin>" not in self.sent else set()
                )
                assert set(found) == wanted | calls
                self.sent = set(found)
        self.sent |= {mark for mark in MARK.findall(_text(transcript[-1:])) if mark.startswith("<A")}
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
        assert (await replay_session(sdk.archive.log, sdk.archive.blobs, session.id))[1] == []
        return strategy

    async def _wanted(self, sdk: CodeSDK, given: ModelInput, transcript: list[Message]) -> set[str]:
        """Return the marks that the conversation must have, by what is recorded of it."""
        manifest = json.loads(await sdk.read_artifact(given.input_ref.artifact_id))["messages"]
        places = range(manifest["first"], manifest["last"] + 1)
        marks = set(MARK.findall(_text([transcript[n] for n in places])))
        if given.context_window.strategy == "delta":
            assert given.context_window.omitted == []
            return self.sent | marks
        left_out = {n for o in given.context_window.omitted for n in range(o.first, o.last + 1)}
        assert left_out == set(range(manifest["first"]))
        marks |= (
            set(MARK.findall(_text([transcript[manifest["summary"]]]))) if "summary" in manifest else set()
        )
        return marks - ({"<Rend>"} if given.context_window.replaced else set())

    async def _conversation(self, sdk: CodeSDK, exact: ModelInput) -> Any:
        document = json.loads(await sdk.read_artifact(exact.input_ref.artifact_id))
        parts = {name: await sdk.archive.blobs.get(name) for name in hashes_of(document)}
        body = join(document, parts)
        return next(body[key] for key in ("messages", "input", "contents") if key in body)


def _text(messages: list[Message]) -> str:
    return msgspec.json.encode(messages).decode()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[CodeSDK]:
    async with CodeSDK.open(folder / "data", providers={}) as sdk:
        yield sdk


def said(number: int) -> str:
    return f"<A{number}> {FILLING}"


@pytest.mark.parametrize("runtime", tried(AMPLE_ROOM))
async def test_with_ample_room_a_program_is_told_what_is_new_and_after_a_loss_everything(
    tmp_path: Path, runtime: str
) -> None:
    story, later = Story(tmp_path, runtime), "delta" if runtime in KEEPERS else "full"
    reloaded = "full" if runtime in NOT_LOADED else later
    refused = [[{"http": {"status": 400}}]] * 4
    async with opened(tmp_path) as sdk:
        session = await story.begin(sdk, AMPLE, said(1), [READ], said(2), *refused)
        assert await story.turn(sdk, session) == "full"
        assert await story.turn(sdk, session) == later
        with pytest.raises(CodeSDKError):
            await (await session.start("<Q90> is told, and never answered.")).result()
        assert await story.compare(sdk, session) == later
    async with opened(tmp_path) as sdk:
        session = await story.go_on(sdk, said(3))
        assert await story.turn(sdk, session) == reloaded
    shutil.rmtree(tmp_path / "data" / "runtimes", ignore_errors=runtime not in KEEPERS)
    async with opened(tmp_path) as sdk:
        session = await story.go_on(sdk, said(4), said(5), said(6))
        assert await story.turn(sdk, session) == "full"
        other = next(name for name in MODELS if name != runtime)
        await session.move(other, model=MODELS[other])
        assert await story.turn(sdk, session) == "full"
        assert await story.turn(sdk, session) == "delta"


async def test_codex_is_told_once_of_what_was_never_answered_until_there_is_no_room_for_it(tmp_path: Path):
    story, refused = Story(tmp_path, "codex-sdk"), [[{"http": {"status": 400}}]]
    async with opened(tmp_path) as sdk:
        session = await story.begin(sdk, AMPLE, said(1), *refused, *map(said, range(2, 6)))
        strategies = [await story.turn(sdk, session)]
        with pytest.raises(CodeSDKError):
            await (await session.start(f"<Q90> {FILLING}")).result()
        strategies += [await story.compare(sdk, session), *[await story.turn(sdk, session) for _ in range(2)]]
        assert "<Q90>" in story.sent
        await session.set(context_budget_tokens=TIGHT)
        strategies.append(await story.turn(sdk, session))
        assert {"<Q90>", "<Q4>"} & story.sent == {"<Q4>"}
        strategies.append(await story.turn(sdk, session))
        assert "<Q90>" not in story.sent
    assert strategies == ["full", "delta", "delta", "delta", "window", "delta"]


@pytest.mark.parametrize("runtime", tried(LITTLE_ROOM))
async def test_with_little_room_a_program_begins_again_inside_its_budget(
    tmp_path: Path, runtime: str
) -> None:
    story = Story(tmp_path, runtime)
    async with opened(tmp_path) as sdk:
        session = await story.begin(sdk, 2_400, said(1), [READ], *map(said, range(2, 6)))
        strategies = [await story.turn(sdk, session) for _ in range(3)]
        assert "<Rbegin>" in story.sent
        assert "<Rend>" not in story.sent, "the large result is a preview now, and no turn is gone"
        await session.set(context_budget_tokens=TIGHT)
        strategies += [await story.turn(sdk, session) for _ in range(2)]
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
    assert strategies == (
        ["full", "delta", "full", "window", "delta"]
        if runtime in KEEPERS
        else ["full", "full", "full", "window", "window"]
    )
    compacted = [event.payload for event in events if isinstance(event.payload, SessionCompacted)]
    for payload, budget in zip(compacted, (2_400, TIGHT) if runtime in KEEPERS else (), strict=True):
        assert payload.tokens_after <= budget // 2
        assert payload.tokens_before > budget
    for event in events:
        if isinstance(event.payload, ModelInput) and event.payload.context_window.strategy == "window":
            is_small = event.payload.context_window.estimated_tokens <= TIGHT
            assert is_small or (runtime in ADDS_MESSAGES and event.payload.capture == "exact"), "there, too"


@pytest.mark.parametrize("runtime", tried(TOO_LARGE))
async def test_a_session_that_is_too_large_works_again_after_it_was_compacted(
    tmp_path: Path, runtime: str
) -> None:
    story = Story(tmp_path, runtime)
    too_large, summary = [{"context_too_large": True}], "<S1> is what they said."
    async with opened(tmp_path) as sdk:
        # Minicode leaves out by itself what is too much, and says so: see tests/minicode.
        turns = (
            said(1),
            said(2),
            *([too_large] if runtime in KEEPERS else []),
            said(3),
            summary,
            said(4),
            said(5),
        )
        session = await story.begin(sdk, AMPLE, *turns)
        await story.turn(sdk, session)
        await story.turn(sdk, session)
        if runtime in KEEPERS:
            with pytest.raises(CodeSDKError, match="codesdk compact") as refused:
                await (await session.start("<Q91> is too much.")).result()
            assert refused.value.code == "CONTEXT_TOO_LARGE"
            await story.compare(sdk, session)
        await session.compact("window", keep_tokens=300)
        assert await story.turn(sdk, session) == "window"
        await session.compact("summary", keep_tokens=100)
        last = [decode(frame.data) async for frame in sdk.archive.frames(session.id)][-1].payload
        assert isinstance(last, SessionCompacted)
        assert last.summary_ref is not None
        assert await sdk.read_artifact(last.summary_ref.artifact_id) == summary.encode()
        await story.compare(sdk, session)
        assert await story.turn(sdk, session) == "window"
        assert "<S1>" in story.sent
        assert await story.turn(sdk, session) == ("delta" if runtime in KEEPERS else "window")
        assert "<S1>" in story.sent


class Watched(ScriptedRuntime):
    """The scripted runtime, and what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[TaskInput] = []

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        self.given.append(task)
        return await super().start_task(host, task)


@pytest.mark.parametrize("budget", [AMPLE, TIGHT])
async def test_a_runtime_without_a_copy_of_its_own_gets_what_is_recorded(tmp_path: Path, budget: int) -> None:
    (tmp_path / "long.txt").write_text(LONG)
    runtime = Watched()
    turns = [{"steps": [{"text": f"<A{n}> {FILLING}"}, *([READ] if n == 1 else [])]} for n in range(8)]
    async with CodeSDK.open(None, runtimes={SCRIPTED: runtime}) as sdk:
        session = await sdk.create_session(
            runtime=SCRIPTED,
            workspace=tmp_path,
            permission_mode="auto",
            settings=SessionSettings(
                context_budget_tokens=budget, runtime_config={"script": {"turns": turns}}
            ),
        )
        for number in range(6):
            await (await session.start(f"<Q{number}> {FILLING}")).result()
        transcript = await session.transcript()
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
    compiled = [event.payload for event in events if isinstance(event.payload, ModelInput)]
    assert {given.context_window.strategy for given in compiled} == {"full"} | (
        {"window"} if budget == TIGHT else set()
    )
    for record, given in zip(compiled, runtime.given, strict=True):
        window = record.context_window
        left_out = [message for o in window.omitted for message in transcript[o.first : o.last + 1]]
        told = set(MARK.findall(_text(list(given.messages))))
        assert told.isdisjoint(MARK.findall(_text(left_out)))
        end = len(left_out) + len(given.messages)
        marks = set(MARK.findall(_text(transcript[len(left_out) : end])))
        assert told == marks - ({"<Rend>"} if window.replaced else set())
        assert window.estimated_tokens <= budget
