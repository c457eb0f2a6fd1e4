"""Tools owned on the wire, end to end: an agent that runs whatever reaches it, in every format, streaming and whole."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.gateway.agent import agent_runtime
from tests.gateway.capture.test_tap import body_of as document_of, check, events_of, payloads
from tests.gateway.ownership import loop_agent
from tests.gateway.ownership.loop_agent import NATIVES, PATHS, RULES, LoopAgent
from tests.gateway.peers import WIRES, peer

from codesdk import CodeSDK, Session, SessionSettings, TaskFailure
from codesdk.contract.events import Event
from codesdk.contract.models import Wire
from codesdk.contract.ownership import MARK_START, SideMark, WireRules
from codesdk.contract.runtime import Finished
from codesdk.contract.settings import Budget, Budgets, Limits
from codesdk.engine.checks.verify import verify_session
from codesdk.gateway import session_cassette
from codesdk.gateway.ownership import turn
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.upstream import Provider
from codesdk.gateway.wires.formats import codec_for
from codesdk.script import Script, parse_object
from codesdk.tools import PREFIX, ToolRegistry, builtin_registry, wire_name

HIDDEN = (
    "Task",
    "Read",
    "exec_command",
    "apply_patch",
    "shell",
    "run_terminal_cmd",
    "code_interpreter",
    "x" * 64,
)
USAGE = {"input": 100, "output": 20}
READ = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}
BOTH = [
    pytest.param(wire, stream, id=f"{wire}-{'stream' if stream else 'whole'}")
    for wire in WIRES
    for stream in (True, False)
]


def foreign(name: str, call_id: str = "f1", **given: Any) -> dict[str, Any]:
    return {"call": {"tool": name, "input": given or {"command": "id"}, "id": call_id, "offered": False}}


def script(*turns: Any) -> Script:
    whole = [{"steps": [{"text": t}] if isinstance(t, str) else t, "usage": USAGE} for t in turns]
    return parse_object({"turns": whole}, "a test")


@asynccontextmanager
async def opened(tmp_path: Path, agent: LoopAgent, **options: Any) -> AsyncIterator[CodeSDK]:
    options.setdefault("providers", {})
    runtimes = {"agent": agent_runtime(agent.play)}
    async with CodeSDK.open(tmp_path / "data", runtimes=runtimes, **options) as sdk:
        yield sdk


async def session_of(sdk: CodeSDK, tmp_path: Path, plays: Any, **options: Any) -> Session:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "notes.txt").write_text("remember the milk\n")
    options.setdefault("permission_mode", "auto")
    return await sdk.create_session(runtime="agent", workspace=workspace, plays=plays, **options)


async def exact_bodies(sdk: CodeSDK, events: list[Event]) -> list[dict[str, Any]]:
    """Return what the model was sent, request by request."""
    exact = [p for p in payloads(events, "model.input") if p.capture == "exact"]
    return [await document_of(sdk, p.input_ref.artifact_id) for p in exact]


def offered(wire: Wire, body: dict[str, Any]) -> list[str]:
    """Return the tools of a request, by our own codec and by what the codec does not read."""
    path, _, query = PATHS[wire, True].partition("?")
    route = codec_for(wire).route("POST", path, query)
    assert route is not None
    others = [
        next(iter(t)) for t in body.get("tools", []) if wire == "gemini" and "functionDeclarations" not in t
    ]
    return [*codec_for(wire).parse(route, body).tools, *others]


def denials(events: list[Event]) -> list[tuple[str, str, str]]:
    rules = {p.tool_call_id: (p.source, p.rule) for p in payloads(events, "tool.call.policy_evaluated")}
    return [(p.name, *rules[p.tool_call_id]) for p in payloads(events, "tool.call.denied")]


async def play(
    tmp_path: Path, agent: LoopAgent, plays: Any, **options: Any
) -> tuple[str, list[Event], list[Any]]:
    """Play one task. Return its text, its events and what the model was sent."""
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(sdk, tmp_path, plays, **options)
        result = await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
        return result.text, events, await exact_bodies(sdk, events)


OURS = sorted(wire_name(spec.name) for spec in builtin_registry().specs())


# --- nothing but ours -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_no_call_but_ours_reaches_the_agent_and_the_turn_goes_on(
    tmp_path: Path, wire: Wire, stream: bool
):
    agent = LoopAgent(wire, stream)
    every = [foreign(name, f"f{place}") for place, name in enumerate((*NATIVES, *HIDDEN))]
    text, events, sent = await play(tmp_path, agent, script([{"text": "Hm."}, *every], [READ], "Milk."))
    assert text == "Milk."
    assert agent.ran == []
    assert [sorted(offered(wire, body)) for body in sent] == [OURS] * 3
    assert denials(events) == [(name, "codesdk", "wire") for name in (*NATIVES, *HIDDEN)]
    assert [(p.name, p.is_error) for p in payloads(events, "tool.call.completed")] == [
        ("workspace.read", False)
    ]
    assert [e.payload.kind for e in events if e.type == "runtime.notice"] == []
    assert MARK_START not in json.dumps(sent)
    assert MARK_START not in json.dumps(
        [msgspec.to_builtins(e.payload) for e in events if "output" in e.type]
    )


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_without_the_acts_the_agent_does_run_them(
    tmp_path: Path, wire: Wire, stream: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("codesdk.gateway.sessions.OwnedBackend", lambda inner, tap, rules: inner)
    agent = LoopAgent(wire, stream)
    text, events, sent = await play(
        tmp_path, agent, script([foreign("Bash"), foreign("Task", "f2")], "Done.")
    )
    assert (text, agent.ran) == ("Done.", ["Bash", "Task"])
    assert "Bash" in offered(wire, sent[0])
    assert denials(events) == []


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_a_call_of_ours_beside_foreign_ones_runs_and_the_model_sees_all_of_them_later(
    tmp_path: Path, wire: Wire, stream: bool
):
    agent = LoopAgent(wire, stream)
    text, events, sent = await play(tmp_path, agent, script([foreign("Bash"), READ], "Milk."))
    assert (text, agent.ran) == ("Milk.", [])
    assert denials(events) == [("Bash", "codesdk", "wire")]
    assert len(payloads(events, "runtime.request.started")) == 2
    told = json.dumps(sent[1])
    assert "There is no tool Bash here" in told
    assert "remember the milk" in told
    assert PREFIX not in told
    assert MARK_START not in told
    assert MARK_START in json.dumps(agent.asked[1])  # what the agent has in its place


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_a_model_that_is_asked_again_sees_its_call_and_the_denial_and_the_agent_one_answer(
    tmp_path: Path, wire: Wire, stream: bool
):
    agent = LoopAgent(wire, stream)
    plays = script([{"text": "First. "}, foreign("Bash")], [{"text": "Second."}, READ], "Third.")
    text, events, sent = await play(tmp_path, agent, plays)
    assert text == "Third."
    assert len(agent.asked) == 2
    assert [len(body[key_of(wire)]) for body in sent] == sorted(len(body[key_of(wire)]) for body in sent)
    again = json.dumps(sent[1])
    assert "First." in again
    assert "There is no tool Bash here" in again
    started = [p.request_id for p in payloads(events, "runtime.request.started")]
    assert len(set(started)) == 3
    assert [p.request_id for p in payloads(events, "usage.reported") if p.source == "gateway"] == started
    [first, *_] = agent.answers
    assert first.tokens is not None
    assert (first.tokens.input, first.tokens.output) == (200, 40)  # of both
    words = [p.content[0].text for p in payloads(events, "model.output.completed")]
    assert words[0].split() == ["First.", "Second."]


def key_of(wire: Wire) -> str:
    return {"responses": "input", "gemini": "contents"}.get(wire, "messages")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_tools_that_the_session_enabled_pass_and_no_others(tmp_path: Path, wire: Wire):
    agent = LoopAgent(wire, rules=msgspec.structs.replace(RULES, natives=("Bash",)))
    text, events, sent = await play(
        tmp_path, agent, script([foreign("Bash"), foreign("Write", "f2")], "Done.")
    )
    assert (text, agent.ran) == ("Done.", ["Bash"])
    assert sorted(offered(wire, sent[0])) == sorted(["Bash", *OURS])
    assert denials(events) == [("Write", "codesdk", "wire")]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_an_agent_about_which_nothing_is_said_keeps_its_names_for_ours_and_loses_all_else(
    tmp_path: Path, wire: Wire
):
    agent = LoopAgent(wire, rules=WireRules())
    call = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}
    text, events, sent = await play(tmp_path, agent, script([foreign("Bash")], [call], "Milk."))
    assert (text, agent.ran) == ("Milk.", [])
    assert sorted(offered(wire, sent[0])) == sorted(PREFIX + name for name in OURS)
    assert denials(events) == [("Bash", "codesdk", "wire")]


# --- bounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_a_model_that_calls_foreign_tools_for_ever_ends_in_a_clear_failure(
    tmp_path: Path, wire: Wire, stream: bool
):
    agent = LoopAgent(wire, stream)
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(sdk, tmp_path, script(*[[foreign("Bash")]] * 50))
        with pytest.raises(TaskFailure, match=r"tools that it does not have \(Bash\)") as raised:
            await (await session.start("Go")).result()
        assert raised.value.code == "MODEL_ERROR"
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert agent.ran == []
    assert len(payloads(events, "runtime.request.started")) == 1 + turn.MAX_AGAIN
    assert len(denials(events)) == 1 + turn.MAX_AGAIN
    [answer] = agent.answers
    assert (answer.calls, answer.error) == ([], None)  # the agent got a valid end


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_a_model_that_makes_the_same_call_for_ever_is_stopped(tmp_path: Path, wire: Wire):
    agent = LoopAgent(wire, stream=True)
    async with opened(tmp_path, agent, limits=Limits(max_same_calls=5)) as sdk:
        session = await session_of(sdk, tmp_path, script(*[[READ]] * 50))
        with pytest.raises(
            TaskFailure, match=r"called workspace\.read .* more than 5 times in a row"
        ) as raised:
            await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert (raised.value.code, raised.value.retryable) == ("MODEL_ERROR", False)
    assert len(payloads(events, "tool.call.completed")) == 6


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_a_budget_counts_the_requests_that_ask_again(tmp_path: Path, wire: Wire, stream: bool):
    agent = LoopAgent(wire, stream)
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(
            sdk,
            tmp_path,
            script([foreign("Bash")], [foreign("Bash")], "Never."),
            budgets=Budgets(task=Budget(requests=2)),
            interaction_mode="non_interactive",
        )
        with pytest.raises(TaskFailure) as raised:
            await (await session.start("Go")).result()
        assert raised.value.code == "BUDGET_EXCEEDED"
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert len(payloads(events, "runtime.request.started")) == 2
    assert len(denials(events)) == 2
    assert [answer.error for answer in agent.answers] == [None]


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_a_provider_that_fails_when_it_is_asked_again_fails_the_agents_request(
    tmp_path: Path, wire: Wire, stream: bool
):
    agent = LoopAgent(wire, stream)
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(sdk, tmp_path, script([foreign("Bash")], [{"http": {"status": 503}}]))
        words = "the connection broke" if stream else "HTTP 503"
        with pytest.raises(TaskFailure, match=words):
            await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert denials(events) == [("Bash", "codesdk", "wire")]
    assert [p.status for p in payloads(events, "runtime.request.completed")] == ["completed", "failed"]


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_a_provider_that_refuses_to_be_asked_again_ends_the_task(
    tmp_path: Path, wire: Wire, stream: bool
):
    agent = LoopAgent(wire, stream)
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(sdk, tmp_path, script([foreign("Bash")], [{"http": {"status": 400}}]))
        with pytest.raises(TaskFailure, match=r"refused the request that told it so \(HTTP 400\)"):
            await (await session.start("Go")).result()
        await check(sdk, session)
    assert [answer.error for answer in agent.answers] == [None]


# --- what the log and the cassettes have ----------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_the_agents_own_request_is_kept_beside_what_was_sent(tmp_path: Path, wire: Wire):
    agent = LoopAgent(wire)
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(sdk, tmp_path, script([foreign("Bash")], [READ], "Milk."))
        await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
        exact = [e for e in events if e.type == "model.input" and e.payload.capture == "exact"]
        own = [await document_of(sdk, e.runtime.raw_ref.artifact_id) for e in exact if e.runtime.raw_ref]
        sent = [await document_of(sdk, e.payload.input_ref.artifact_id) for e in exact]
    first, second = agent.asked
    assert own == [first, first, second]  # the second one asked the model again
    assert all("Bash" in offered(wire, body) for body in own)
    assert all("Bash" not in offered(wire, body) for body in sent)


@pytest.mark.parametrize(("wire", "stream"), BOTH)
@pytest.mark.slow
async def test_a_recording_has_both_sides_and_plays_again_through_the_acts(
    tmp_path: Path, wire: Wire, stream: bool
):
    agent = LoopAgent(wire, stream)
    plays = script([{"text": "Hm."}, foreign("Bash"), READ], [foreign("Write")], [READ], "Milk.")
    async with Gateway() as upstream:
        url = upstream.admit(ScriptedModel(plays))
        providers = {one: Provider(origin=url, key="key-0123456789") for one in WIRES}
        async with opened(tmp_path / "recorded", agent, providers=providers) as sdk:
            settings = SessionSettings(gateway="record")
            session = await session_of(sdk, tmp_path, None, settings=settings)
            text = (await (await session.start("Go")).result()).text
            cassette = await session_cassette(sdk.archive, session.id)
            recorded = await events_of(sdk, session)
    assert text == "Milk."
    assert [exchange.step for exchange in cassette] == [0, 0, 1, 0]
    assert [exchange.request for exchange in cassette] == [agent.asked[n] for n in (0, 1, 1, 2)]
    assert all("Bash" not in json.dumps((e.sent or {}).get("tools")) for e in cassette)
    again = LoopAgent(wire, stream)
    async with opened(tmp_path / "replayed", again) as sdk:
        session = await session_of(sdk, tmp_path, cassette)
        assert (await (await session.start("Go")).result()).text == "Milk."
        assert list(sdk.model_problems(session.id)) == []
        replayed = await events_of(sdk, session)
        await check(sdk, session)
    assert again.ran == []
    assert (
        denials(replayed) == denials(recorded) == [("Bash", "codesdk", "wire"), ("Write", "codesdk", "wire")]
    )


async def test_calls_denied_before_a_restart_are_shown_to_the_model_again(tmp_path: Path):
    agent = LoopAgent("anthropic")
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(sdk, tmp_path, script([foreign("Bash"), READ], "Milk."))
        await (await session.start("Go")).result()
    agent.history.append({"role": "assistant", "content": "Milk."})
    async with opened(tmp_path, agent) as sdk:
        session = await sdk.session(session.id, plays=script("Yes."))
        assert (await (await session.start("Really?")).result()).text == "Yes."
        sent = await exact_bodies(sdk, await events_of(sdk, session))
        await check(sdk, session)
    assert MARK_START in json.dumps(agent.asked[-1])
    assert MARK_START not in json.dumps(sent[-1])
    assert "There is no tool Bash here" in json.dumps(sent[-1])


async def test_a_damaged_part_of_the_agents_own_request_is_found_by_verify(tmp_path: Path):
    async with opened(tmp_path, LoopAgent("anthropic")) as sdk:
        session = await session_of(sdk, tmp_path, script("Hi."))
        await (await session.start("Go")).result()
        [exact] = [e for e in await events_of(sdk, session) if e.type == "model.input" and e.runtime.raw_ref]
        assert exact.runtime.raw_ref is not None
        document = json.loads(await sdk.read_artifact(exact.runtime.raw_ref.artifact_id))
        own_tools = document["parts"]["tools"]
        with contextlib.closing(sqlite3.connect(tmp_path / "data" / "codesdk.db")) as db, db:
            assert db.execute("UPDATE blobs SET data = '{}' WHERE hash = ?", (own_tools,)).rowcount == 1
        [found] = await verify_session(sdk.archive.log, sdk.archive.blobs, session.id)
    assert (found.invariant, own_tools in found.message) == (1, True)


# --- requests that are not the conversation -------------------------------------------------------------------


def posting(wire: Wire, *bodies: Any, path: str | None = None, rules: WireRules = RULES) -> Any:
    """Return an agent that sends requests; the answer to the first is what it says."""

    async def play(task: Any) -> AsyncIterator[Any]:
        url = await task.host.model_endpoint(rules=rules) + (path or PATHS[wire, False])
        heard: list[str] = []
        async with httpx2.AsyncClient(timeout=30) as client:
            for body in bodies:
                data = body if isinstance(body, bytes) else msgspec.json.encode(body)
                answer = await client.post(url, content=data, headers={"content-type": "application/json"})
                heard.append(f"{answer.status_code} {answer.text}")
        yield loop_agent.said_by(heard[0])
        yield Finished(stop_reason="end_turn")

    return play


async def posted(tmp_path: Path, play: Any, plays: Any) -> tuple[str, list[Event], list[Any]]:
    async with CodeSDK.open(tmp_path / "data", runtimes={"agent": agent_runtime(play)}, providers={}) as sdk:
        session = await session_of(sdk, tmp_path, plays)
        text = (await (await session.start("Go")).result()).text
        events = await events_of(sdk, session)
        await check(sdk, session)
        return text, events, await exact_bodies(sdk, events)


def asking(wire: Wire, text: str) -> Any:
    """Return a request with tools."""
    return loop_agent.body_of(wire, False, [loop_agent.said(wire, text)], [PREFIX + "workspace_read"])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.slow
async def test_a_side_request_gets_no_tools_and_one_of_an_unknown_kind_is_noted(
    tmp_path: Path, wire: Wire, known: bool
):
    side, main = asking(wire, "Rate this, please."), asking(wire, "Go")
    rules = msgspec.structs.replace(RULES, side=(SideMark(text="rate this"),) if known else ())
    plays = script([{"text": "Fine."}, foreign("Bash")], "Done.")
    text, events, sent = await posted(tmp_path, posting(wire, side, main, rules=rules), plays)
    assert text.startswith("200")
    assert [bool(offered(wire, one)) for one in sent] == [False, True]
    assert denials(events) == [("Bash", "codesdk", "wire")]
    assert "no tool Bash here, and no other" in payloads(events, "tool.call.denied")[0].reason
    notes = [(p.kind, p.details["tools"][:1]) for p in payloads(events, "runtime.notice")]
    assert notes == ([] if known else [("hidden_request", ["Bash"])])
    assert len(payloads(events, "runtime.request.started")) == 2  # nobody is asked again


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_a_task_whose_conversation_is_never_recognized_fails_and_says_what_to_do(
    tmp_path: Path, wire: Wire
):
    body = asking(wire, "<query>\nGo\n</query>")
    play = posting(wire, body, body)
    async with CodeSDK.open(tmp_path / "data", runtimes={"agent": agent_runtime(play)}, providers={}) as sdk:
        session = await session_of(sdk, tmp_path, script("I have no tools.", "Still not."))
        with pytest.raises(
            TaskFailure, match=r"was offered no tools.*`codesdk runtimes probe`.*`appends`"
        ) as raised:
            await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert (raised.value.code, raised.value.retryable, raised.value.runtime) == (
        "RUNTIME_PROTOCOL",
        False,
        "agent",
    )
    assert [p.details["purpose"] for p in payloads(events, "runtime.notice")] == ["unknown"] * 2


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_a_conversation_is_recognized_by_what_the_agent_is_known_to_write_behind_our_words(
    tmp_path: Path, wire: Wire
):
    rules = msgspec.structs.replace(RULES, appends=("</query>", " </query>"))
    play = posting(wire, asking(wire, "<query>\nGo\n</query>"), rules=rules)
    _, events, sent = await posted(tmp_path, play, script("Hi."))
    assert [bool(offered(wire, one)) for one in sent] == [True]
    assert payloads(events, "runtime.notice") == []


async def test_a_session_without_tools_has_nothing_to_miss(tmp_path: Path):
    play = posting("chat", asking("chat", "something else"))
    async with CodeSDK.open(
        tmp_path / "data", runtimes={"agent": agent_runtime(play)}, providers={}, tools=ToolRegistry()
    ) as sdk:
        session = await session_of(sdk, tmp_path, script("Hi."))
        assert (await (await session.start("Go")).result()).text.startswith("200")


async def test_a_request_that_counts_tokens_is_rewritten_too(tmp_path: Path):
    body = loop_agent.body_of("anthropic", False, [loop_agent.said("anthropic", "Go")], [])
    seen: list[dict[str, Any]] = []
    play = posting("anthropic", body, path="/v1/messages/count_tokens")

    async def count(writer: asyncio.StreamWriter) -> None:
        answer = b'{"input_tokens": 7}'
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()

    async with (
        peer(count) as provider,
        CodeSDK.open(
            tmp_path / "data",
            runtimes={"agent": agent_runtime(play)},
            providers={"anthropic": Provider(origin=provider.url, key="key-0123456789")},
        ) as sdk,
    ):
        session = await session_of(sdk, tmp_path, None)
        assert (await (await session.start("Go")).result()).text == '200 {"input_tokens": 7}'
        seen.append(json.loads(provider.asked[0].partition(b"\r\n\r\n")[2]))
    assert sorted(tool["name"] for tool in seen[0]["tools"]) == OURS


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("anthropic", {"model": "m", "max_tokens": 1, "messages": [], "tools": "all"}),
        (
            "anthropic",
            {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": 7}], "tools": [7]},
        ),
        ("responses", {"model": "m", "input": "Go", "tools": {"type": "local_shell"}}),
        (
            "chat",
            {"model": "m", "messages": [{"role": "user", "content": "Go"}], "tools": "x", "functions": 3},
        ),
        (
            "gemini",
            {"contents": [{"role": "user", "parts": [{"text": "Go"}]}], "tools": {"codeExecution": {}}},
        ),
        ("gemini", {"contents": [{"role": "user", "parts": [{"text": "Go"}]}], "tools": 7}),
    ],
)
@pytest.mark.slow
async def test_tools_in_a_form_that_no_format_has_never_reach_the_model(
    tmp_path: Path, wire: Wire, body: Any
):
    text, _, sent = await posted(tmp_path, posting(wire, body), script("Hi."))
    assert text.startswith(("200", "400"))
    assert all(set(offered(wire, one)) <= set(OURS) for one in sent)
    assert all(b"local_shell" not in msgspec.json.encode(one) for one in sent)


# --- streams ----------------------------------------------------------------------------------------------------


async def test_text_passes_at_once_while_the_answer_goes_on(tmp_path: Path):
    reached = asyncio.Event()
    got: list[bytes] = []

    async def play(task: Any) -> AsyncIterator[Any]:
        url = await task.host.model_endpoint(rules=RULES) + PATHS["anthropic", True]
        body = loop_agent.body_of("anthropic", True, [loop_agent.said("anthropic", "Go")], [])
        async with httpx2.AsyncClient(timeout=30) as client, client.stream("POST", url, json=body) as answer:
            async for chunk in answer.aiter_bytes():
                got.append(chunk)
                if b"At once." in b"".join(got):
                    reached.set()
                    break
        yield Finished(stop_reason="end_turn")

    plays = script([foreign("Bash"), {"text": "At once."}, {"silence": True}])
    async with CodeSDK.open(tmp_path / "data", runtimes={"agent": agent_runtime(play)}, providers={}) as sdk:
        session = await session_of(sdk, tmp_path, plays)
        await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert reached.is_set()
    assert [p.status for p in payloads(events, "runtime.request.completed")] == ["abandoned"]


async def test_an_agent_that_hangs_up_releases_the_provider_and_what_was_called_by_then_is_on_record(
    tmp_path: Path,
):
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    begun = b"".join(
        b"data: " + msgspec.json.encode(one) + b"\n\n"
        for one in (
            {"type": "message_start", "message": {"id": "m", "model": "m", "content": [], "usage": {}}},
            {"type": "content_block_start", "index": 0, "content_block": call},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": "{}"},
            },
            {"type": "content_block_stop", "index": 0},
        )
    )

    async def begin(writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + f"{len(begun):x}\r\n".encode() + begun + b"\r\n")
        await writer.drain()

    async def play(task: Any) -> AsyncIterator[Any]:
        url = await task.host.model_endpoint(rules=RULES) + PATHS["anthropic", True]
        body = loop_agent.body_of("anthropic", True, [loop_agent.said("anthropic", "Go")], [])
        async with httpx2.AsyncClient(timeout=30) as client, client.stream("POST", url, json=body) as answer:
            async for chunk in answer.aiter_bytes():
                if MARK_START.encode() in chunk:
                    break
        await provider.left.wait()  # at once, although the provider has not ended its answer
        yield Finished(stop_reason="end_turn")

    async with (
        peer(begin) as provider,
        CodeSDK.open(
            tmp_path / "data",
            runtimes={"agent": agent_runtime(play)},
            providers={"anthropic": Provider(origin=provider.url, key="key-0123456789")},
        ) as sdk,
    ):
        session = await session_of(sdk, tmp_path, None)
        async with asyncio.timeout(20):
            await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert [p.name for p in payloads(events, "tool.call.denied")] == ["Bash"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_an_answer_that_breaks_off_behind_a_foreign_call_breaks_off_for_the_agent(
    tmp_path: Path, wire: Wire
):
    agent = LoopAgent(wire)
    async with opened(tmp_path, agent) as sdk:
        session = await session_of(sdk, tmp_path, script([foreign("Bash"), {"reset": True}], "Never."))
        with pytest.raises(TaskFailure, match="the connection broke"):
            await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    # In this format only what follows tells that the arguments of a call are complete.
    assert [p.name for p in payloads(events, "tool.call.denied")] == ([] if wire == "chat" else ["Bash"])
    assert len(payloads(events, "runtime.request.started")) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_an_agent_that_would_look_for_the_network_is_told_in_the_stream_that_it_breaks_off(
    tmp_path: Path, wire: Wire
):
    agent = LoopAgent(wire, rules=msgspec.structs.replace(RULES, tells_breaks=True))
    text, events, _ = await play(tmp_path, agent, script([{"text": "Half"}, {"reset": True}]))
    [answer] = agent.answers  # and so the connection did not break
    assert (text, answer.text) == ("Half", "Half")
    assert "The model's answer broke off." in (answer.error or "")
    [end] = payloads(events, "runtime.request.completed")
    assert end.status == "failed"
