"""What stands beside a transcript: one for each id of an author, shown everywhere, and given to no model."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.bundle.unpacked import bundled
from tests.minicode.runtime.test_runtime import bench, ended, says

from codesdk import CodeSDK, Conflict, InvalidRequest, NotFound, Session
from codesdk.contract import events as ev
from codesdk.contract.actions import Caller, SupplementTranscript
from codesdk.contract.codec import decode
from codesdk.contract.messages import text_of
from codesdk.contract.runtime import Identified
from codesdk.contract.tools import Actor
from codesdk.engine import replay_session, verify_session
from codesdk.engine.sessions import supplements
from codesdk.testing.fakes import FakeRuntime, done, memory_sdk, message

MARK = "beside-the-transcript"


async def problems(sdk: CodeSDK, session: Session) -> list[Any]:
    log, blobs = sdk.archive.log, sdk.archive.blobs
    _, differences = await replay_session(log, blobs, session.id)
    return [*await verify_session(log, blobs, session.id), *differences]


def talks(name: str) -> FakeRuntime:
    """A runtime that keeps no conversation, and says hello in every task."""
    return FakeRuntime([Identified(model="m"), message("Hello."), done()], name=name)


async def test_the_same_id_replaces_what_its_author_put_there_and_nobody_elses():
    async with memory_sdk([[{"text": "Hi."}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        task = await session.start("Go.")
        await task.result()
        first = await session.supplement("score", data={"points": 1}, task_id=task.id)
        await session.supplement("note", "Look at this.")
        theirs = SupplementTranscript(session_id=session.id, supplement_id="score", text="Theirs.")
        await sdk.engine.execute(theirs, Caller(actor=Actor(kind="extension", id="judge")), None)
        second = await session.supplement("score", data={"points": 2}, task_id=task.id)
        assert (first.data, first.seq < second.seq) == ({"points": 1}, True)
        shown = await session.supplements()
        assert [(one.by.kind, one.supplement_id, one.text, one.data) for one in shown] == [
            ("user", "note", "Look at this.", None),
            ("extension", "score", "Theirs.", None),
            ("user", "score", None, {"points": 2}),
        ]
        assert shown[-1] == second
        log = [e async for e in _stored(sdk, session) if isinstance(e.payload, ev.TranscriptSupplemented)]
        assert [e.trace.task_id for e in log] == [None] * 4
        assert [text_of(m.content) for m in await session.transcript()] == ["Go.", "Hi."]
        assert await problems(sdk, session) == []


async def _stored(sdk: CodeSDK, session: Session) -> AsyncGenerator[ev.Event]:
    async for frame in sdk.archive.frames(session.id):
        yield decode(frame.data)


async def test_under_one_key_it_is_put_there_once():
    async with memory_sdk([[{"text": "Hi."}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        one = await session.supplement("a", "x", idempotency_key="k")
        assert await session.supplement("a", "x", idempotency_key="k") == one
        with pytest.raises(Conflict):
            await session.supplement("a", "y", idempotency_key="k")
        assert await session.supplements() == [one]


async def test_it_can_be_put_there_while_a_task_runs_and_when_the_session_is_closed():
    runtime = FakeRuntime(name="one")
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="one")
        task = await session.start("Go.")
        await runtime.started()
        await session.supplement("a", "while it runs", task_id=task.id)
        await session.close()
        await session.supplement("a", "afterwards", task_id=task.id)
        assert [one.text for one in await session.supplements()] == ["afterwards"]
        assert await problems(sdk, session) == []


@pytest.mark.parametrize("bad", ["", "a:b", "a b", "-a", "x" * 65, "sw0rdfish-secret"])
async def test_an_id_that_cannot_be_one_is_refused(bad: str):
    async with memory_sdk([[{"text": "Hi."}]], secrets=["sw0rdfish-secret"]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        with pytest.raises(InvalidRequest, match="The id of a supplement"):
            await session.supplement(bad, "x")


async def test_it_is_bounded_and_holds_no_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supplements, "MAX_SUPPLEMENTS", 2)
    async with memory_sdk([[{"text": "Hi."}]], secrets=["sw0rdfish-secret"]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        with pytest.raises(InvalidRequest, match="has a text or data"):
            await session.supplement("a")
        with pytest.raises(InvalidRequest, match="may have 65,536 bytes"):
            await session.supplement("a", "x" * 70_000)
        deep: Any = []
        for _ in range(150):
            deep = [deep]
        with pytest.raises(InvalidRequest, match="nested"):
            await session.supplement("a", data=deep)
        with pytest.raises(NotFound):
            await session.supplement("a", "x", task_id="task_nothere")
        one = await session.supplement("a", "the sw0rdfish-secret", data={"sw0rdfish-secret": 1})
        assert "sw0rdfish" not in repr(one)
        await session.supplement("b", "x")
        with pytest.raises(Conflict, match="which is the limit"):
            await session.supplement("c", "x")
        await session.supplement("b", "it can be replaced")
        assert await problems(sdk, session) == []


async def test_no_runtime_is_given_it_not_after_a_move_nor_in_a_fork():
    one, two = talks("one"), talks("two")
    async with memory_sdk(runtimes=[one, two]) as sdk:
        session = await sdk.create_session(runtime="one")
        await (await session.start("First")).result()
        await session.supplement("a", MARK, data={"a": MARK})
        await (await session.start("Second")).result()
        await session.move("two")
        await (await session.start("Third")).result()
        fork = await session.fork()
        await (await fork.start("Fourth")).result()
        given = [task.input for task in (*one.tasks, *two.tasks)]
        assert len(given) == 4
        assert MARK not in repr(given)
        assert await fork.supplements() == []
        for each in (session, fork):
            assert MARK not in repr(await each.transcript())
            rows = await each.artifacts(limit=1_000)
            assert rows
            for row in rows:  # the compiled inputs are among them, and the fork's transcript
                assert MARK.encode() not in (await sdk.archive.read_artifact(row.ref.artifact_id))[1]
            assert await problems(sdk, each) == []


async def test_what_a_model_is_sent_does_not_have_it():
    async with bench("anthropic", says("One."), says("Two.")) as b, b.sdk() as sdk:
        session = await b.session(sdk)
        await ended(session, "Say one.")
        await session.supplement("a", MARK, data={"a": MARK})
        task = await ended(session, "Say two.")
        told = await b.told(task)
        bodies = await b.requests(task)
    assert ("Say one." in told, MARK in told, MARK in str(bodies)) == (True, False, False)


async def test_after_a_crash_and_in_a_reconstructed_conversation_it_is_still_beside_it(tmp_path: Path):
    first, second = FakeRuntime(name="one"), talks("one")
    async with CodeSDK.open(tmp_path / "data", runtimes={"one": first}) as sdk:
        session = await sdk.create_session(runtime="one", workspace=tmp_path)
        task = await session.start("First")
        await first.started()
        await session.supplement("a", MARK, task_id=task.id)
        session_id = session.id
    async with CodeSDK.open(tmp_path / "data", runtimes={"one": second}) as sdk:
        session = await sdk.session(session_id)
        await (await session.start("Second")).result()
        assert MARK not in repr(second.tasks[0].input)
        assert [one.text for one in await session.supplements()] == [MARK]
        manifest, bundle = await bundled(sdk, session.id)
        assert [one["text"] for one in bundle.json("supplements.json")] == [MARK]
        assert "supplements.json" in [file.path for file in manifest.files]
        assert await problems(sdk, session) == []
