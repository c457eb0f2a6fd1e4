"""What `create_minicode()` is told reaches the model: seen in the requests that a scripted endpoint was sent."""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs
from tests.minicode.models.wire import Asked
from tests.minicode.rig import FAMILIES, VARIABLES, scripted, variables
from tests.minicode.test_session import PIXEL, SAY

from codesdk import prices
from codesdk.contract.messages import Text
from codesdk.contract.models import Tokens
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.minicode import Minicode, create_minicode
from codesdk.minicode.models import PROVIDERS
from codesdk.minicode.options import AgentOverrides
from codesdk.minicode.plugins import define_tool
from codesdk.minicode.types import Finish, ProviderId, StepFinish
from codesdk.script import parse_object

CALL: list[dict[str, Any]] = [{"call": {"tool": "bash", "input": {"command": "true"}}}]
PLUGIN = '''
import logging

from codesdk.minicode.plugins import Contribution, Plugin, define_tool


def plugin(config):
    @define_tool
    async def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello, {name}!"

    async def on_event(event, context):
        logging.getLogger("greeter").info(f"{type(event).__name__} {context.session_id} {context.cwd}")

    def setup(context):
        return Contribution(tools=[greet], instructions=["Use greet to greet."], hooks=[on_event])

    return Plugin(id="greeter", version="1", setup=setup)
'''


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@asynccontextmanager
async def recorded(
    work: Path,
    home: Path,
    *turns: list[dict[str, Any]],
    family: ProviderId = "anthropic",
    agent: AgentOverrides | None = None,
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[Minicode, Asked]]:
    """Yield minicode with a user's configuration, and what its endpoint is asked."""
    if config is not None:
        (home / "config").mkdir()
        (home / "config" / "config.json").write_text(json.dumps(config))
    async with Gateway() as gateway:
        asked = Asked(scripted(*turns))
        given = variables(home, gateway.admit(asked), family) | dict(env or {})
        async with await create_minicode(cwd=work, env=given, agent=agent) as sdk:
            yield sdk, asked


def instructions_in(body: Any, family: ProviderId) -> str:
    """Return what a request tells a model before the conversation, where its format has that."""
    match family:
        case "anthropic":
            told = body["system"]
            return told if isinstance(told, str) else "".join(block["text"] for block in told)
        case "openai":
            return body["instructions"]
        case "google":
            return "".join(part["text"] for part in body["systemInstruction"]["parts"])
        case "openai-compatible":
            [told] = [message["content"] for message in body["messages"] if message["role"] == "system"]
            return told


def names_in(body: Any) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


@pytest.mark.parametrize("family", FAMILIES)
async def test_instructions_of_an_application_take_the_place_of_ours(
    tmp_path: Path, work: Path, family: ProviderId
):
    async with recorded(work, tmp_path, SAY, family=family, agent={"instructions": "Answer in rhymes."}) as (
        sdk,
        asked,
    ):
        await (await sdk.open_session()).send("Hm?").response
    assert [instructions_in(body, family) for body in asked.bodies] == ["Answer in rhymes."]


async def test_configured_instructions_of_each_layer_follow_ours(tmp_path: Path, work: Path):
    (work / ".minicode").mkdir()
    (work / ".minicode" / "config.json").write_text('{"agent": {"instructions": "The project uses tabs."}}')
    async with recorded(work, tmp_path, SAY, config={"agent": {"instructions": "Answer in rhymes."}}) as (
        sdk,
        asked,
    ):
        await (await sdk.open_session()).send("Hm?").response
    told = instructions_in(asked.bodies[0], "anthropic")
    assert told.startswith(f"You are a coding agent. You work in the directory {work},")
    assert told.index("Answer in rhymes.") < told.index("The project uses tabs.")


async def test_tools_of_an_application_take_the_place_of_ours(tmp_path: Path, work: Path):
    @define_tool
    async def divide(a: float, b: float) -> float:
        """Divide two numbers."""
        return a / b

    async with recorded(work, tmp_path, SAY, agent={"tools": [divide]}) as (sdk, asked):
        await (await sdk.open_session()).send("Hm?").response
    [tool] = asked.bodies[0]["tools"]
    assert (tool["name"], tool["description"]) == ("divide", "Divide two numbers.")
    assert tool["input_schema"]["required"] == ["a", "b"]


async def test_a_plugin_adds_instructions_tools_and_hooks_to_a_turn(tmp_path: Path, work: Path):
    file = tmp_path / "greeter.py"
    file.write_text(PLUGIN)
    told: asyncio.Queue[logging.LogRecord] = asyncio.Queue()
    log = logging.getLogger("greeter")
    log.addHandler(QueueHandler(told))
    log.setLevel(logging.INFO)
    turns = [{"call": {"tool": "greet", "input": {"name": "Ada"}}}], SAY
    async with recorded(work, tmp_path, *turns, config={"plugins": {file.as_uri(): {}}}) as (sdk, asked):
        session = await sdk.open_session(id="one")
        events = [type(event).__name__ async for event in session.send("Hm?").events]
        async with asyncio.timeout(10):
            heard = [(await told.get()).getMessage() for _ in events]
    assert instructions_in(asked.bodies[0], "anthropic").endswith("\n\nUse greet to greet.")
    assert names_in(asked.bodies[0]) == ["read", "write", "edit", "bash", "greet"]
    assert "Hello, Ada!" in json.dumps(asked.bodies[1]["messages"])
    assert heard == [f"{name} one {work}" for name in events]


async def test_a_turn_ends_after_as_many_steps_as_are_configured(tmp_path: Path, work: Path):
    async with recorded(work, tmp_path, CALL, CALL, CALL, config={"agent": {"max_steps": 2}}) as (sdk, asked):
        response = await (await sdk.open_session()).send("Hm?").response
    assert (response.finish_reason, len(asked.bodies)) == ("max_steps", 2)


async def test_a_turn_ends_when_a_condition_of_the_application_holds(tmp_path: Path, work: Path):
    def twice(steps: Any) -> bool:
        return len(steps) == 2

    async with recorded(work, tmp_path, CALL, CALL, CALL, agent={"stop_when": twice}) as (sdk, asked):
        events = [event async for event in (await sdk.open_session()).send("Hm?").events]
    assert isinstance(events[-1], Finish)
    assert events[-1].finish_reason == "stop_condition"
    assert len([event for event in events if isinstance(event, StepFinish)]) == len(asked.bodies) == 2


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_switched_model_is_the_one_that_is_asked(tmp_path: Path, work: Path, family: ProviderId):
    async with recorded(work, tmp_path, SAY, SAY, SAY, family=family, env={"MINICODE_MODEL": "first"}) as (
        sdk,
        asked,
    ):
        session = await sdk.open_session(id="one")
        await session.send("Hm?").response
        await session.close()
        session = await sdk.open_session(id="one", runtime={"model": "second"})
        await session.send("And?").response
        await session.close()
        await (await sdk.open_session(id="one")).send("Still?").response
    if family == "google":  # which has it in the address
        models = [request.path.rpartition("/")[2].partition(":")[0] for request in asked.requests]
    else:
        models = [body["model"] for body in asked.bodies]
    assert models == ["first", "second", "second"]


@pytest.mark.parametrize("family", FAMILIES)
async def test_an_attached_image_is_in_the_request_with_the_words_about_it(
    tmp_path: Path, work: Path, family: ProviderId
):
    (work / "dot.png").write_bytes(PIXEL)
    async with recorded(work, tmp_path, SAY, SAY, family=family) as (sdk, asked):
        session = await sdk.open_session(id="one")
        block = await session.attach(work / "dot.png", "image/png")
        await session.send([Text(text="What is this?"), block]).response
        await session.close()
        await (await sdk.open_session(id="one")).send("Sure?").response
    for body in asked.bodies:
        sent = json.dumps(body).translate(str.maketrans("-_", "+/"))  # Google's base64 is that of addresses
        assert "What is this?" in sent
        assert sent.count(base64.b64encode(PIXEL).decode()) == 1


@pytest.mark.parametrize("family", ["openai", "anthropic", "google"])
async def test_a_turn_with_a_provider_of_the_price_table_has_its_cost(
    tmp_path: Path, work: Path, family: ProviderId, monkeypatch: pytest.MonkeyPatch
):
    known, model = PROVIDERS[family], PROVIDERS[family].models[0]
    script = {"turns": [{"steps": SAY, "usage": {"input": 1000, "output": 200, "cache_read": 70}}] * 2}
    async with Gateway() as gateway:
        url = gateway.admit(ScriptedModel(parse_object(script, "test"))) + known.path
        # As if the provider were at home here: an address that the user names has no list price.
        monkeypatch.setitem(cast("dict[str, Any]", PROVIDERS), family, structs.replace(known, url=url))
        env = variables(tmp_path, url, family)
        del env[VARIABLES[family][1]]
        async with await create_minicode(cwd=work, env=env) as sdk:
            session = await sdk.open_session()
            first = (await session.send("Hm?").response).total_usage
            await session.send("And?").response
            totals = session.snapshot().usage_totals
    await prices.ready()
    expected = prices.price_of(known.wire, model, Tokens(input=1000, output=200, cache_read=70))
    assert expected
    assert first.cost_usd == pytest.approx(expected)
    assert totals is not None
    assert totals.cost_usd == pytest.approx(2 * expected)
