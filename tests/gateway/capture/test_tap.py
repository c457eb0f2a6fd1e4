"""Sessions whose model requests pass the gateway: what the log says of them."""

import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.agent import KEY, MODEL, agent_runtime, asking, claude_like, codex_like
from tests.gateway.peers import WIRES
from tests.stored import everything

from codesdk import CodeSDK, Conflict, Session, SessionSettings, TaskFailure
from codesdk.contract.canonical import content_hash
from codesdk.contract.events import Event
from codesdk.contract.runtime import Finished
from codesdk.contract.settings import Budget, Budgets, Limits
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.upstream import Provider
from codesdk.gateway.wires.exchange import Wire
from codesdk.script import Script, parse_object

READ: dict[str, Any] = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}
USAGE = {"input": 100, "output": 20, "cache_read": 5, "cache_write": 3}
TWO_TURNS = parse_object(
    {
        "turns": [
            {"steps": [{"text": ["Let me ", "look."]}, READ], "usage": USAGE},
            {"steps": [{"text": "Done."}], "usage": USAGE},
        ]
    },
    "two turns",
)


def turns(*texts: str) -> Script:
    return parse_object({"turns": [{"steps": [{"text": text}], "usage": USAGE} for text in texts]}, "turns")


@asynccontextmanager
async def opened(tmp_path: Path, play: Any = claude_like, **options: Any) -> AsyncIterator[CodeSDK]:
    async with CodeSDK.open(
        tmp_path / "data", runtimes={"agent": agent_runtime(play)}, providers={}, **options
    ) as sdk:
        yield sdk


async def session_of(sdk: CodeSDK, tmp_path: Path, plays: Any, **options: Any) -> Session:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "notes.txt").write_text("remember the milk\n")
    options.setdefault("permission_mode", "auto")
    return await sdk.create_session(runtime="agent", workspace=workspace, plays=plays, **options)


async def events_of(sdk: CodeSDK, session: Session) -> list[Event]:
    from codesdk.contract.codec import decode

    return [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


async def check(sdk: CodeSDK, session: Session) -> None:
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session.id) == []
    assert (await replay_session(log, blobs, session.id))[1] == []


def outline(events: list[Event]) -> list[str]:
    return [event.type for event in events if not event.type.endswith(".delta")]


def payloads(events: list[Event], kind: str) -> list[Any]:
    return [event.payload for event in events if event.type == kind]


# --- what is written ------------------------------------------------------------------------------------


async def test_each_request_leaves_its_start_its_exact_input_its_end_and_its_usage(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, TWO_TURNS)
        result = await (await session.start("What do my notes say?")).result()
        events = await events_of(sdk, session)
        assert result.text == "Done."
        types = outline(events)
        assert types.count("runtime.request.started") == types.count("runtime.request.completed") == 2
        assert [p.capture for p in payloads(events, "model.input")] == ["compiled", "exact", "exact"]
        started = [p.request_id for p in payloads(events, "runtime.request.started")]
        assert [p.request_id for p in payloads(events, "model.input")][1:] == started
        assert [p.request_id for p in payloads(events, "runtime.request.completed")] == started
        done = payloads(events, "runtime.request.completed")[0]
        assert (done.status, done.http_status) == ("completed", 200)
        assert 0 <= done.time_to_first_byte_ms <= done.duration_ms
        reported = payloads(events, "usage.reported")
        assert [(p.source, p.input, p.output, p.cache_read, p.cache_write) for p in reported] == [
            ("gateway", 100, 20, 5, 3)
        ] * 2
        assert (result.usage.input, result.usage.output) == (200, 40)
        await check(sdk, session)


async def test_the_exact_input_is_the_request_and_a_message_is_stored_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, TWO_TURNS)
        await (await session.start("What do my notes say?")).result()
        events = await events_of(sdk, session)
        first, second = [p for p in payloads(events, "model.input") if p.capture == "exact"]
        one, two = [await body_of(sdk, p.input_ref.artifact_id) for p in (first, second)]
        assert one["messages"] == [{"role": "user", "content": "What do my notes say?"}]
        assert two["messages"][0] == one["messages"][0]
        assert "remember the milk" in json.dumps(two["messages"][2])
        assert two["model"] == MODEL
        assert [entry.name for entry in first.tool_manifest] == [tool["name"] for tool in one["tools"]]
        documents = [json.loads(await sdk.read_artifact(p.input_ref.artifact_id)) for p in (first, second)]
        assert set(hashes_of(documents[0])) <= set(hashes_of(documents[1]))


async def body_of(sdk: CodeSDK, artifact_id: str) -> dict[str, Any]:
    document = json.loads(await sdk.read_artifact(artifact_id))
    parts = {name: await sdk.archive.blobs.get(name) for name in hashes_of(document)}
    assert {name: content_hash(data) for name, data in parts.items()} == {name: name for name in parts}
    return join(document, parts)


async def test_what_codesdk_wrote_is_not_listed_and_an_instruction_file_that_is_sent_is(
    tmp_path: Path,
) -> None:
    async def with_file(task: Any) -> AsyncIterator[Any]:
        text = (tmp_path / "workspace" / "AGENTS.md").read_text()
        message = task.input.messages[-1]
        block = type(message.content[0])(text=f"{text}\n\n{message.content[0].text}")
        import msgspec

        given = msgspec.structs.replace(
            task.input, messages=[msgspec.structs.replace(message, content=[block])]
        )
        task.input = given
        async for item in claude_like(task):
            yield item

    async with opened(tmp_path, with_file) as sdk:
        session = await session_of(sdk, tmp_path, turns("Hello."))
        (tmp_path / "workspace" / "AGENTS.md").write_text("Always answer in verse, and mention the sea.\n")
        await (await session.start("Say hello to the reader, please.")).result()
        [exact] = [p for p in payloads(await events_of(sdk, session), "model.input") if p.capture == "exact"]
        sources = json.loads(await sdk.read_artifact(exact.implicit_sources_ref.artifact_id))["sources"]
        assert [(s["origin"], s["extent"]) for s in sources] == [("file:workspace/AGENTS.md", "whole")]


async def test_the_gateway_counts_and_what_the_runtime_says_on_top_is_kept_but_not_added(
    tmp_path: Path,
) -> None:
    from codesdk.contract.events import UsageReported
    from codesdk.contract.runtime import Draft

    async def boasting(task: Any) -> AsyncIterator[Any]:
        yield Draft(
            UsageReported(
                model="x",
                input=9,
                output=9,
                cache_read=0,
                cache_write=0,
                reasoning=0,
                cost_usd=1.0,
                source="runtime",
            )
        )
        async for item in claude_like(task):
            yield item

    async with opened(tmp_path, boasting) as sdk:
        session = await session_of(sdk, tmp_path, turns("Hi."))
        result = await (await session.start("Hello")).result()
        assert (result.usage.input, result.usage.output, result.usage.cost_usd) == (100, 20, None)
        await check(sdk, session)


async def test_a_known_model_has_a_cost_and_an_unknown_one_has_none(tmp_path: Path) -> None:
    async with opened(tmp_path, codex_like) as sdk:
        priced = await session_of(sdk, tmp_path, turns("Hi."), model="gpt-5")
        assert ((await (await priced.start("Hello")).result()).usage.cost_usd or 0) > 0
        unknown = await session_of(sdk, tmp_path, turns("Hi."), model="gpt-none-such")
        assert (await (await unknown.start("Hello")).result()).usage.cost_usd is None


async def test_a_hidden_request_is_noted_and_does_not_eat_a_turn(tmp_path: Path) -> None:
    async def titled(task: Any) -> AsyncIterator[Any]:
        import anthropic

        async with anthropic.AsyncAnthropic(
            base_url=await task.host.model_endpoint(), api_key=KEY, max_retries=0
        ) as client:
            await client.messages.create(
                model=MODEL,
                max_tokens=20,
                system="You are a title generator. Generate a title for this conversation.",
                messages=[{"role": "user", "content": "Hello"}],
            )
        async for item in claude_like(task):
            yield item

    async with opened(tmp_path, titled) as sdk:
        session = await session_of(sdk, tmp_path, turns("Hi."))
        assert (await (await session.start("Hello")).result()).text == "Hi."
        events = await events_of(sdk, session)
        [notice] = payloads(events, "runtime.notice")
        assert (notice.kind, notice.details["purpose"]) == ("hidden_request", "title")
        assert [p.purpose for p in payloads(events, "runtime.request.started")] == ["title", "main"]


async def test_an_error_of_the_model_is_told_with_its_status(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        failing = parse_object({"turns": [{"steps": [{"http": {"status": 529}}]}]}, "failing")
        session = await session_of(sdk, tmp_path, failing)
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("Hello")).result()
        assert caught.value.code == "MODEL_ERROR"
        [done] = payloads(await events_of(sdk, session), "runtime.request.completed")
        assert (done.status, done.http_status) == ("failed", 529)
        await check(sdk, session)


async def test_a_runtime_can_ask_how_its_last_request_ended_as_the_gateway_saw_it(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def play(task: Any) -> AsyncIterator[Any]:
        seen.append(await task.host.last_answer())
        url = await task.host.model_endpoint() + "/v1/messages"
        asked = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Go"}],
        }
        async with httpx2.AsyncClient() as client:
            for system in ("", "", "You are a title generator."):
                await client.post(url, json={**asked, "system": system})
                seen.append(await task.host.last_answer())
        yield Finished(stop_reason="end_turn")

    turns_of = [[{"http": {"status": 401, "message": "No such key."}}], [{"text": "Hello."}]]
    script = parse_object({"turns": [{"steps": steps} for steps in turns_of], "loop": True}, "a test")
    async with opened(tmp_path, play) as sdk:
        session = await session_of(sdk, tmp_path, script)
        await (await session.start("Go")).result()
        await (await session.start("Go")).result()
    ended = [None if answer is None else (answer.status, answer.http_status) for answer in seen]
    # The request for a title does not count, and a new task begins with nothing.
    assert ended[:4] == [None, ("failed", 401), ("completed", 200), ("completed", 200)]
    assert ended[4] is None
    assert "No such key." in seen[1].error


@pytest.mark.slow
async def test_a_session_keeps_its_script_over_a_restart_until_it_is_given_another(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, turns("Hi."))
    async with opened(tmp_path) as sdk:
        assert (await (await (await sdk.session(session.id)).start("Hello")).result()).text == "Hi."
    async with opened(tmp_path) as sdk:
        again = await sdk.session(session.id, plays=turns("Hello again."))
        assert (await (await again.start("Hello")).result()).text == "Hello again."


# --- budgets ------------------------------------------------------------------------------------------------


async def test_over_the_budget_a_request_is_refused_the_task_fails_and_a_raise_lets_it_resume(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(
            sdk,
            tmp_path,
            TWO_TURNS,
            budgets=Budgets(session=Budget(requests=1)),
            interaction_mode="non_interactive",
        )
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("What do my notes say?")).result()
        assert caught.value.code == "BUDGET_EXCEEDED"
        [question] = await sdk.approvals()
        assert (question.kind, question.task_id, question.state) == ("budget", None, "waiting")
        with pytest.raises(Conflict, match=question.approval_id):
            await session.resume()
        await session.approve(question.approval_id)
        assert (await (await session.resume("Go on.")).result()).text == "Done."
        assert await sdk.approvals() == []
        await check(sdk, session)


@pytest.mark.parametrize(
    ("play", "status", "words"),
    [(claude_like, 403, "PermissionDeniedError"), (codex_like, 429, "insufficient_quota")],
)
@pytest.mark.slow
async def test_the_refusal_has_a_shape_that_a_runtime_does_not_retry(
    tmp_path: Path, play: Any, status: int, words: str
) -> None:
    seen: list[Any] = []

    async def watched(task: Any) -> AsyncIterator[Any]:
        async for item in play(task):
            if not isinstance(item, Finished):  # it goes on, and asks its model once more
                yield item
        async for item in play(task):
            seen.append(item)
            yield item

    async with opened(tmp_path, watched) as sdk:
        session = await session_of(
            sdk, tmp_path, turns("One.", "Two."), budgets=Budgets(session=Budget(requests=1))
        )
        with pytest.raises(TaskFailure, match="session budget of 1 request"):
            await (await session.start("Hello")).result()
        assert words in seen[-1].error.message
        assert str(status) in seen[-1].error.message
        await check(sdk, session)


async def test_a_task_budget_counts_each_task_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(
            sdk, tmp_path, turns("One.", "Two."), budgets=Budgets(task=Budget(requests=1))
        )
        assert (await (await session.start("Hello")).result()).text == "One."
        assert (await (await session.start("Hello")).result()).text == "Two."


async def test_near_the_budget_the_next_tool_call_waits_for_an_answer_and_a_raise_keeps_the_task_alive(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, TWO_TURNS, budgets=Budgets(task=Budget(requests=1)))
        task = await session.start("What do my notes say?")
        async for event in task.events():
            if event.type == "approval.requested":
                assert event.payload.kind == "budget"
                assert event.trace.task_id == task.id
                await session.approve(event.payload.approval_id)
        assert (await task.result()).text == "Done."
        await check(sdk, session)


async def test_a_stop_closes_the_question_about_the_budget(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, TWO_TURNS, budgets=Budgets(task=Budget(requests=1)))
        task = await session.start("What do my notes say?")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.stop()
        assert (await task.result()).state == "stopped"
        assert await sdk.approvals() == []
        await check(sdk, session)


async def test_a_principals_budget_counts_all_its_sessions_also_those_of_yesterday(tmp_path: Path) -> None:
    limits = Limits(principal_budget=Budget(requests=2))
    async with opened(tmp_path, limits=limits) as sdk:
        for text in ("One.", "Two."):
            session = await session_of(sdk, tmp_path, turns(text))
            assert (await (await session.start("Hello")).result()).text == text
    async with opened(tmp_path, limits=limits) as sdk:
        session = await session_of(sdk, tmp_path, turns("Three."))
        with pytest.raises(TaskFailure, match="principal budget of 2 requests"):
            await (await session.start("Hello")).result()


async def test_a_cost_budget_refuses_a_model_without_a_price(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, turns("Hi."), budgets=Budgets(session=Budget(cost_usd=1.0)))
        with pytest.raises(TaskFailure, match="is not known"):
            await (await session.start("Hello")).result()


async def test_a_runtime_that_asks_the_same_again_and_again_is_stopped(tmp_path: Path) -> None:
    limits = Limits(max_same_requests=5)
    async with opened(tmp_path, asking(50), limits=limits) as sdk:
        session = await session_of(sdk, tmp_path, turns(*["No."] * 50))
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("Loop")).result()
        assert caught.value.code == "RUNTIME_PROTOCOL"
        assert len(payloads(await events_of(sdk, session), "runtime.request.started")) == 5


async def test_tasks_that_have_the_same_asked_are_no_loop(tmp_path: Path) -> None:
    async with opened(tmp_path, asking(2), limits=Limits(max_same_requests=2)) as sdk:
        session = await session_of(sdk, tmp_path, turns(*["No."] * 6))
        for _ in range(3):
            await (await session.start("Again")).result()
        assert len(payloads(await events_of(sdk, session), "runtime.request.started")) == 6


# --- cassettes ----------------------------------------------------------------------------------------------


async def test_a_recorded_session_is_played_again_without_the_provider(tmp_path: Path) -> None:
    from codesdk.gateway.cassettes.tapes import session_cassette

    async with Gateway() as upstream:
        model = ScriptedModel(TWO_TURNS)
        url = upstream.admit(model)
        providers: dict[Wire, Provider] = {
            wire: Provider(origin=url, key="sk-real-key-0123456789abcdef") for wire in WIRES
        }
        async with CodeSDK.open(
            tmp_path / "data", runtimes={"agent": agent_runtime()}, providers=providers
        ) as sdk:
            session = await session_of(sdk, tmp_path, None, settings=SessionSettings(gateway="record"))
            first = await (await session.start("What do my notes say?")).result()
            cassette = await session_cassette(sdk.archive, session.id)
            deltas = [p.delta for p in payloads(await events_of(sdk, session), "model.output.delta")]
            await check(sdk, session)
        asked = model.played
    assert (asked, len(cassette)) == (2, 2)
    async with opened(tmp_path) as sdk:
        again = await session_of(sdk, tmp_path, cassette)
        second = await (await again.start("What do my notes say?")).result()
        assert second.text == first.text
        assert [p.delta for p in payloads(await events_of(sdk, again), "model.output.delta")] == deltas
    data = everything(tmp_path / "data")
    assert KEY.encode() not in data
    assert b"sk-real-key-0123456789abcdef" not in data


# --- what verify finds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["part", "document"])
async def test_a_stored_request_that_is_damaged_is_found_by_verify(tmp_path: Path, lost: str) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, turns("Hi."))
        await (await session.start("Hello")).result()
        [exact] = [p for p in payloads(await events_of(sdk, session), "model.input") if p.capture == "exact"]
        document = json.loads(await sdk.read_artifact(exact.input_ref.artifact_id))
        damaged = exact.input_ref.content_hash if lost == "document" else hashes_of(document)[0]
        with contextlib.closing(sqlite3.connect(tmp_path / "data" / "codesdk.db")) as db, db:
            assert db.execute("UPDATE blobs SET data = '{}' WHERE hash = ?", (damaged,)).rowcount == 1
        findings = await verify_session(sdk.archive.log, sdk.archive.blobs, session.id)
        assert [finding.invariant for finding in findings] == [1]
        assert damaged in findings[0].message or exact.input_ref.artifact_id in findings[0].message
