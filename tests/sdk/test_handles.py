"""Handles over the life of a session: queues, other processes, pages, attachments, secrets, wrong ids."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codesdk import (
    ArtifactBlock,
    CodeSDK,
    InvalidRequest,
    Message,
    NotFound,
    SessionSettings,
    Text,
)
from codesdk.contract.events import TERMINAL_TYPES
from codesdk.contract.records import TaskRow
from codesdk.engine import EngineService
from codesdk.engine.checks.verify import verify_session
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, FakeTask, delta, done, memory_sdk, message

pytestmark = pytest.mark.anyio

SECRET = "canary-4f1c9a7e"
TURNS = {"turns": [{"steps": [{"text": ["One, ", "two."]}]}, {"steps": [{"text": "Three."}]}]}

WRITER = f"""
import asyncio, sys
from codesdk import CodeSDK, SessionSettings

async def main():
    async with CodeSDK.open(sys.argv[1]) as sdk:
        settings = SessionSettings(runtime_config={{"script": {TURNS!r}}})
        session = await sdk.create_session(runtime="scripted", workspace=".", settings=settings)
        task = await session.start("Count")
        await task.result()
        print(session.id, task.id)

asyncio.run(main())
"""


def write_in_another_process(directory: Path) -> str:
    command = [sys.executable, "-c", WRITER, "data"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def files_with(directory: Path, data: bytes) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and data in path.read_bytes()]


# --- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deltas", "asked"), [(3, 0), (2_000, 1)])
async def test_a_result_is_waited_for_without_asking_for_the_task_unless_that_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deltas: int, asked: int
):
    found: list[str] = []
    ask = EngineService.task

    async def task(self: EngineService, task_id: str) -> TaskRow:
        found.append(task_id)
        return await ask(self, task_id)

    script = {"turns": [{"steps": [{"burst": {"count": deltas, "size": 5}}]}]}
    async with CodeSDK.open(None) as sdk:
        settings = SessionSettings(runtime_config={"script": script})
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path, settings=settings)
        monkeypatch.setattr(EngineService, "task", task)
        started = await session.start("Go on")
        first = await started.result()
        assert len(first.text) == 5 * deltas
        assert found == [started.id] * asked
        assert await started.result() == await session.task(started.id).result() == first


# --- queues --------------------------------------------------------------------------------------


async def test_a_queued_task_yields_its_own_events_from_start_to_end():
    turns = [[{"text": "first"}, {"await_steer": True}], [{"text": "second"}]]
    async with memory_sdk(turns) as sdk:
        session = await sdk.create_session(runtime="scripted")
        first = await session.start("one")
        second = await session.start("two")
        assert (await session.task_info(second.id)).state == "queued"
        async for event in first.events():
            if event.type == "model.output.delta":
                await first.steer("go on")
        types = [event.type async for event in second.events()]
        assert (types[0], types[-1]) == ("task.started", "task.completed")
        assert (await second.result()).text == "second"
        assert [event.type async for event in second.events()] == types


async def test_a_queued_task_that_is_stopped_has_a_start_and_an_end():
    async with memory_sdk([[{"stall": "stopped"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        first = await session.start("one")
        second = await session.start("two")
        await second.stop("not needed")
        events = [event async for event in second.events()]
        assert [event.type for event in events] == ["task.started", "task.stopped"]
        assert events[0].type == "task.started"
        assert events[0].payload.executed is False
        result = await second.result()
        assert (result.state, result.stop_reason, result.duration_ms) == ("stopped", "not needed", 0)
        await first.stop()
        assert (await first.result()).state == "stopped"


async def test_an_ended_task_can_be_asked_again_and_again():
    async with memory_sdk([[{"text": "hi"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        task = await session.start("one")
        results = [await task.result() for _ in range(3)]
        assert results[0] == results[1] == results[2]
        await task.stop("too late")  # no error, no effect
        assert await task.result() == results[0]
        ends = [event.type async for event in task.events() if event.type in TERMINAL_TYPES]
        assert ends == ["task.completed"]


async def test_a_task_of_another_session_is_not_found():
    async with memory_sdk([[{"text": "hi"}]]) as sdk:
        one, two = [await sdk.create_session(runtime="scripted") for _ in range(2)]
        task = await one.start("go")
        await task.result()
        with pytest.raises(NotFound):
            await two.task(task.id).result()
        with pytest.raises(NotFound):
            await two.task_info(task.id)
        with pytest.raises(NotFound):
            await two.task(task.id).stop()
        with pytest.raises(NotFound):
            [event async for event in two.task(task.id).events()]


# --- other processes -----------------------------------------------------------------------------


async def test_a_session_of_another_process_is_there_and_goes_on(tmp_path: Path):
    wrote = write_in_another_process(tmp_path)
    session_id, task_id = wrote.split()
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await sdk.session(session_id)
        assert (await session.task(task_id).result()).text == "One, two."
        assert (await (await session.start("Go on")).result()).text == "Three."
        said = [(each.role, each.content) for each in await session.transcript()]
        assert said == [
            ("user", [Text(text="Count")]),
            ("assistant", [Text(text="One, two.")]),
            ("user", [Text(text="Go on")]),
            ("assistant", [Text(text="Three.")]),
        ]
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session_id) == []


async def test_a_task_that_was_running_at_the_end_of_the_block_was_stopped(tmp_path: Path):
    runtime = ScriptedRuntime(parse_object({"turns": [{"steps": [{"stall": "stopped"}]}]}, "test"))
    async with CodeSDK.open(tmp_path, runtimes={"scripted": runtime}) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        task = await session.start("Wait")
    async with CodeSDK.open(tmp_path, runtimes={"scripted": runtime}) as sdk:
        result = await (await sdk.session(session.id)).task(task.id).result()
        assert (result.state, result.stop_reason) == ("stopped", "CodeSDK is shutting down")


# --- lists ---------------------------------------------------------------------------------------


async def test_sessions_are_listed_in_pages_newest_first():
    async with memory_sdk([[{"text": "hi"}]]) as sdk:
        made = [await sdk.create_session(runtime="scripted", title=str(number)) for number in range(5)]
        await made[3].close()
        pages: list[list[Any]] = []
        after: str | None = None
        while page := await sdk.sessions(after=after, limit=2):
            pages.append([row.title for row in page])
            after = page[-1].session_id
        assert pages == [["4", "3"], ["2", "1"], ["0"]]
        assert [row.title for row in await sdk.sessions(status="closed")] == ["3"]
        assert [row.title for row in await sdk.sessions(status="open")] == ["4", "2", "1", "0"]


# --- artifacts -----------------------------------------------------------------------------------


def attached(artifact_id: str) -> list[Message]:
    return [Message(role="user", content=[Text(text="Look"), ArtifactBlock(artifact_id=artifact_id)])]


async def test_a_file_is_uploaded_attached_and_read_by_the_runtime():
    async def play(task: FakeTask):
        (block,) = [b for b in task.input.messages[-1].content if isinstance(b, ArtifactBlock)]
        data = await task.host.read_artifact(block.artifact_id)
        kept = await task.host.put_artifact(data.upper(), "text/plain", "loud")
        yield message(kept.artifact_id)
        yield done()

    async with memory_sdk(runtimes=[FakeRuntime(play)]) as sdk:
        session = await sdk.create_session(runtime="fake")
        ref = await sdk.put_artifact(b"quiet", "text/plain", "note.txt")
        assert (ref.size_bytes, ref.content_type, ref.name) == (5, "text/plain", "note.txt")
        made = (await (await session.start(attached(ref.artifact_id))).result()).text
        assert await sdk.read_artifact(made) == b"QUIET"
        assert [await sdk.read_artifact(made, *part) for part in ((1,), (1, 3), (9,), (0, 0))] == [
            b"UIET",
            b"UI",
            b"",
            b"",
        ]
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []


async def test_what_cannot_be_attached_is_said_before_the_task_starts():
    async with memory_sdk([[{"text": "hi"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        file = await sdk.put_artifact(b"x", "text/plain")
        with pytest.raises(InvalidRequest, match="cannot take files"):
            await session.start(attached(file.artifact_id))
        with pytest.raises(NotFound, match="art_nothing"):
            await session.start(attached("art_nothing"))
        assert (await session.start("without")).id


# --- secrets -------------------------------------------------------------------------------------


async def test_secrets_are_sealed_beside_the_log_and_known_again_after_a_restart(tmp_path: Path):
    def runtimes() -> dict[str, FakeRuntime]:
        return {"fake": FakeRuntime([delta(f"It is {SECRET}."), done()])}

    async with CodeSDK.open(tmp_path, runtimes=runtimes()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
        first = await (await session.start(f"Keep {SECRET}")).result()
    assert SECRET not in first.text
    assert files_with(tmp_path, SECRET.encode()) == [tmp_path / "equipment" / session.id]
    async with CodeSDK.open(tmp_path, runtimes=runtimes()) as sdk:
        again = await sdk.session(session.id)
        assert (await (await again.start(f"Again {SECRET}")).result()).text == first.text
        assert SECRET not in json.dumps([str(each) for each in await again.transcript()])
    assert files_with(tmp_path, SECRET.encode()) == [tmp_path / "equipment" / session.id]


async def test_secrets_given_for_a_session_that_is_loaded_already_count():
    async with memory_sdk(runtimes=[FakeRuntime([delta(f"It is {SECRET}."), done()])]) as sdk:
        session = await sdk.create_session(runtime="fake")
        await sdk.session(session.id, secrets=[SECRET])
        assert SECRET not in (await (await session.start("Tell")).result()).text


# --- settings ------------------------------------------------------------------------------------


async def test_a_question_that_nobody_answers_ends_after_the_time_of_the_session():
    turns = [
        [{"call": {"tool": "fake.write"}}],
        {"expect": {"tool_result_contains": "Nobody answered"}, "steps": [{"text": "Alone, then."}]},
    ]
    async with memory_sdk(turns) as sdk:
        settings = SessionSettings(approval_timeout_s=0.01)
        session = await sdk.create_session(runtime="scripted", settings=settings)
        assert (await (await session.start("write")).result()).text == "Alone, then."


async def test_one_key_makes_one_session_and_one_task():
    async with memory_sdk([[{"text": "hi"}]]) as sdk:
        one = await sdk.create_session(runtime="scripted", idempotency_key="k")
        two = await sdk.create_session(runtime="scripted", idempotency_key="k")
        assert one.id == two.id
        tasks = [await one.start("go", idempotency_key="t") for _ in range(2)]
        assert tasks[0].id == tasks[1].id
        assert (await tasks[0].result()).text == "hi"
