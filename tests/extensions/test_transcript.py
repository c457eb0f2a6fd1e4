"""`transcript.upsert`: an extension puts something beside the transcript of its event's session, in its own name."""

import asyncio
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.extensions.requirements import shows
from tests.extensions.rig import Emitted, Extensions, extended, session_in, settle
from tests.extensions.test_actions import actions, problems

from codesdk.contract import events as ev
from codesdk.contract.tools import Actor

pytestmark = pytest.mark.anyio

TALK = [[{"text": "Hello."}]]
UPSERTS = """
count = 0
def handle(event, tools):
    global count
    count += 1
    payload = {{"id": "review", "text": f"Review {{count}}.", {more}}}
    return {{"kind": "action_request", "action_type": "transcript.upsert", "payload": payload}}
def register(registry): registry.on({type!r}, handle)
"""
ACTIONS = ["transcript.upsert"]


def upserts(kind: str = "turn.completed", more: str = "") -> str:
    return UPSERTS.format(type=kind, more=more)


@shows("action-transcript")
async def test_an_extension_puts_something_beside_the_transcript_and_replaces_it(
    ext: Extensions, tmp_path: Path
):
    ext.write("helper", upserts(more='"data": {"count": count}'), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK * 2, stored=True) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        tasks = [await session.start("Go."), await session.start("Again.")]
        for task in tasks:
            await task.result()
        await settle(sdk)
        assert actions(emitted, "turn.completed") == [("helper", "performed")] * 2
        (shown,) = await session.supplements()
        assert (shown.supplement_id, shown.by) == ("review", Actor(kind="extension", id="helper"))
        assert (shown.text, shown.data, shown.task_id) == ("Review 2.", {"count": 2}, tasks[1].id)
        event = await session.event(shown.seq)
        assert isinstance(event.payload, ev.TranscriptSupplemented)
        assert (event.trace.task_id, event.trace.client_id) == (None, "extension:helper")
        assert sdk.audit is not None
        records = [r for r in await sdk.audit.read() if (r.who.kind, r.who.id) == ("extension", "helper")]
        assert sorted((r.action, r.outcome) for r in records) == [
            ("extension.transcript.upsert", "performed"),
            ("extension.transcript.upsert", "performed"),
            ("transcript.supplement", "ok"),
            ("transcript.supplement", "ok"),
        ]
        assert "Review" not in repr(await session.transcript())
        assert await problems(sdk, session) == []


def test_the_command_line_shows_it_behind_the_messages(ext: Extensions, tmp_path: Path):
    ext.write("helper", upserts(more='"data": {"count": count}'), actions=ACTIONS)

    async def run() -> str:
        async with extended(ext, tmp_path, TALK, stored=True) as sdk:
            session = await session_in(sdk, tmp_path)
            await (await session.start("Go.")).result()
            await settle(sdk)
            return session.id

    place = ("--data-dir", str(tmp_path / "data"))
    session_id = asyncio.run(run())
    printed = Shell(tmp_path).codesdk(*place, "transcript", session_id).out
    assert printed.endswith('beside it, by extension helper (review)\n  Review 1.\n  {"count":1}\n\n')
    lines = Shell(tmp_path).codesdk(*place, "transcript", session_id, "--json").lines
    assert [line.get("supplement_id") for line in lines] == [None, None, "review"]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ('"session_id": "ses_other"', "forbidden"),
        ('"task_id": "task_other"', "forbidden"),
        ('"project_id": "prj_other"', "forbidden"),
        ('"id": "not an id"', "invalid"),
        ('"text": None', "invalid"),
        ('"text": "x" * 70_000', "invalid"),
        ('"place": 3', "invalid"),
    ],
)
async def test_a_payload_that_does_not_fit_or_reaches_further_is_refused(
    ext: Extensions, tmp_path: Path, more: str, status: str
):
    ext.write("helper", upserts(more=more), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        await (await session.start("Go.")).result()
        await settle(sdk)
        assert actions(emitted, "turn.completed") == [("helper", status)]
        assert await session.supplements() == []


async def test_the_same_event_again_puts_it_there_once(ext: Extensions, tmp_path: Path):
    """An event comes again after a crash; the key of its answer is the same, so the first answer stays."""
    ext.write("helper", upserts(), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        events = [event async for event in task.events()]
        await settle(sdk)
        before = await session.supplements()
        await sdk.extensions.take(events[-1:])
        assert await session.supplements() == before
        head = await sdk.archive.head(session.id)
        types = [(await session.event(seq)).type for seq in range(1, head + 1)]
        assert types.count("transcript.supplemented") == 1


async def test_a_supplement_is_no_occasion_for_another(ext: Extensions, tmp_path: Path):
    ext.write(
        "helper", upserts("transcript.supplemented"), events=["transcript.supplemented"], actions=ACTIONS
    )
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        await session.supplement("mine", "x")
        await settle(sdk)
        await settle(sdk)
        assert actions(emitted, "transcript.supplemented") == [("helper", "invalid")]
        assert [one.supplement_id for one in await session.supplements()] == ["mine"]
