"""`session.suggest()`: an event asks extensions what to ask for next, and what they say comes back, from everywhere."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import Shell
from tests.daemon.rig import daemon
from tests.extensions.requirements import shows
from tests.extensions.rig import Extensions, extended, session_in, settle
from tests.extensions.test_actions import problems

from codesdk import Busy, CodeSDK, Conflict, InvalidRequest, Session
from codesdk.client import CodeSDKClient, SyncClient
from codesdk.contract import events as ev
from codesdk.contract.tools import Actor
from codesdk.extensions import HandlerResult, to_emit_result
from codesdk.extensions.suggestions import MAX_OUTCOME_BYTES, outcomes_of

pytestmark = pytest.mark.anyio

KIND = "suggest_request.requested"
SUGGESTS = f"""
def asked(event, tools):
    return {{"message": "Add a test for " + (event.payload["data"].get("text") or "all of it")}}
def broken(event, tools):
    raise ValueError("no idea")
def remarks(event, tools):
    payload = {{"id": "hint", "text": "There is a suggestion."}}
    return {{"kind": "action_request", "action_type": "transcript.upsert", "payload": payload}}
def register(registry):
    registry.on({KIND!r}, asked)
    registry.on({KIND!r}, broken)
    registry.on({KIND!r}, remarks)
"""


def write(ext: Extensions, source: str = SUGGESTS, **fields: Any) -> None:
    ext.write("helper", source, events=[KIND], actions=["transcript.upsert"], **fields)


async def stored(session: Session, kind: type) -> list[Any]:
    """Return the stored events with payloads of a kind."""
    head = await session.service.head(session.id)
    events = [await session.event(seq) for seq in range(1, head + 1)]
    return [event for event in events if isinstance(event.payload, kind)]


@shows("event-suggest")
async def test_an_application_asks_and_has_what_each_handler_said(ext: Extensions, tmp_path: Path):
    write(ext)
    async with extended(ext, tmp_path, stored=True) as sdk:
        session = await session_in(sdk, tmp_path)
        results = await session.suggest("the parser")
        assert [(one.kind, one.module_name, one.event_type) for one in results] == [
            ("handler_result", "helper", KIND),
            ("handler_error", "helper", KIND),
            ("action_result", "helper", KIND),
        ]
        assert results[0].value == {"message": "Add a test for the parser"}
        assert "no idea" in (results[1].message or "")
        assert (results[2].action_type, results[2].status) == ("transcript.upsert", "performed")
        envelope = to_emit_result("helper", KIND, results[0])
        assert envelope == HandlerResult(module_name="helper", event_type=KIND, value=results[0].value)
        (asked,) = await stored(session, ev.SuggestRequested)
        (answered,) = await stored(session, ev.SuggestAnswered)
        assert (asked.payload.by, asked.payload.text) == (Actor(kind="user"), "the parser")
        assert (answered.payload.suggest_id, answered.payload.by) == (
            asked.payload.suggest_id,
            Actor(kind="engine"),
        )
        assert (asked.trace.task_id, answered.trace.task_id) == (None, None)
        assert answered.payload.results == results
        assert [one.text for one in await session.supplements()] == ["There is a suggestion."]
        assert await session.transcript() == []
        assert sdk.audit is not None
        named = {r.action: r.who.kind for r in await sdk.audit.read() if r.action.startswith("suggest.")}
        assert named == {"suggest.request": "user", "suggest.answer": "engine"}
        assert await problems(sdk, session) == []


async def test_under_one_key_it_is_asked_once_and_the_answer_is_the_same(ext: Extensions, tmp_path: Path):
    write(ext)
    async with extended(ext, tmp_path) as sdk:
        session = await session_in(sdk, tmp_path)
        first = await session.suggest(idempotency_key="k")
        assert await session.suggest(idempotency_key="k") == first
        assert len(await stored(session, ev.SuggestRequested)) == 1


async def test_where_nobody_makes_suggestions_it_is_refused_and_nothing_is_written(
    ext: Extensions, tmp_path: Path
):
    (tmp_path / "ws").mkdir()
    async with CodeSDK.open() as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path / "ws")
        with pytest.raises(Conflict, match=f"subscribes to {KIND}"):
            await session.suggest()
        assert await sdk.archive.head(session.id) == 1
    ext.write("helper")
    write(Extensions(ext.root / "more"), runtime={"core_api_version": 1, "profiles": [{"name": "codex-sdk"}]})
    async with extended(ext, tmp_path) as sdk:
        session = await session_in(sdk, tmp_path)
        with pytest.raises(Conflict, match="for sessions of scripted"):
            await session.suggest()


async def test_the_first_answer_counts_and_what_takes_too_long_is_said(ext: Extensions, tmp_path: Path):
    source = """
import asyncio
async def asked(event, tools):
    await asyncio.Event().wait()
def register(registry): registry.on("suggest_request.requested", asked, timeout_ms=60_000)
"""
    write(ext, source)
    async with extended(ext, tmp_path) as sdk:
        session = await session_in(sdk, tmp_path)
        with pytest.raises(Busy, match="did not answer sug_"):
            await session.suggest(timeout_s=0.01)
        (asked,) = await stored(session, ev.SuggestRequested)
        mine = ev.HandlerOutcome(kind="handler_result", module_name="app", event_type=KIND, value="Mine.")
        await session.answer_suggest(asked.payload.suggest_id, [mine])
        for suggest_id in (asked.payload.suggest_id, "sug_none"):
            with pytest.raises(Conflict, match="waits"):
                await session.answer_suggest(suggest_id, [mine])
        with pytest.raises(InvalidRequest, match="may have"):
            await session.suggest("x" * 70_000)
        assert await problems(sdk, session) == []


async def test_after_a_restart_it_is_answered_once(ext: Extensions, tmp_path: Path):
    """The process ends before the extension was asked; the next one asks it, and what it says is recorded."""
    write(ext)
    async with extended(ext, tmp_path, stored=True) as sdk:
        session = await session_in(sdk, tmp_path)

        async def never(events: Any) -> None:
            raise RuntimeError("this process is about to end")

        sdk.extensions.take = never
        with pytest.raises(Busy):
            await session.suggest(timeout_s=0.01)
    async with extended(ext, tmp_path, stored=True) as sdk:
        await settle(sdk)
        session = await sdk.session(session.id)
        (answered,) = await stored(session, ev.SuggestAnswered)
        assert len(answered.payload.results) == 3
        await sdk.extensions.take(await stored(session, ev.SuggestRequested))  # once more, as after a crash
        assert await stored(session, ev.SuggestAnswered) == [answered]
        assert await problems(sdk, session) == []


def test_a_result_that_is_too_large_is_an_error_in_its_place():
    large = HandlerResult(module_name="a", event_type=KIND, value="x" * MAX_OUTCOME_BYTES)
    small = HandlerResult(module_name="b", event_type=KIND, value=1)
    kept = outcomes_of([large, small])
    assert [(one.kind, one.module_name, one.value) for one in kept] == [
        ("handler_error", "a", None),
        ("handler_result", "b", 1),
    ]
    many = [HandlerResult(module_name="a", event_type=KIND, value="x" * 60_000)] * 20
    kinds = [one.kind for one in outcomes_of(many)]
    assert (kinds.count("handler_result"), kinds.count("handler_error")) == (8, 12)


def test_over_http_with_the_client_and_on_the_command_line(ext: Extensions, tmp_path: Path):
    write(ext)
    shell = Shell(tmp_path)

    async def ask(url: str) -> None:
        async with CodeSDKClient.connect(url) as client:
            session = await client.session(session_id)
            results = await session.suggest("the client")
            assert results[0].value == {"message": "Add a test for the client"}
            assert [one.text for one in await session.supplements()] == ["There is a suggestion."]

    with daemon(shell.data, "--extension", str(ext.root)) as running:
        session_id = running.session()
        asked = running.post(f"/v1/sessions/{session_id}/suggestions", {"text": "HTTP"})
        assert set(asked) == {"suggest_id", "session_id", "seq"}
        events = running.stream(session_id, asked["seq"])
        answer = next(event for event in events if event["type"] == "suggest_request.answered")
        assert answer["payload"]["results"][0]["value"] == {"message": "Add a test for HTTP"}
        asyncio.run(ask(running.url))
        with SyncClient.connect(running.url) as client:
            results = client.session(session_id).suggest("no loop")
            assert results[0].value == {"message": "Add a test for no loop"}
        printed = shell.codesdk("suggest", session_id, "the terminal")
        assert (printed.code, printed.out.splitlines()[0]) == (
            0,
            'helper: {"message":"Add a test for the terminal"}',
        )
        lines = shell.codesdk("suggest", session_id, "--json").lines
        assert lines[0]["value"] == {"message": "Add a test for all of it"}
    alone = shell.codesdk("suggest", session_id, "--json")
    assert (alone.code, alone.error["code"]) == (4, "CONFLICT")
