"""A session that names no runtime: minicode, if any model would answer it."""

import asyncio
from pathlib import Path

import pytest

from codesdk.contract.access import Availability
from codesdk.contract.actions import CreateSession
from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.runtime import Runtime, RuntimeEnv
from codesdk.engine import Permits, engine as engine_module
from codesdk.gateway import Provider, Wire
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.sdk import CodeSDK

SCRIPT = {"turns": [{"steps": [{"text": "Hello."}]}]}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENAI_COMPATIBLE_BASE_URL")
    for name in names:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ANTHROPIC_API_KEY", "a-key-of-nobody"),
        ("OPENAI_API_KEY", "a-key-of-nobody"),
        ("GEMINI_API_KEY", "a-key-of-nobody"),
        ("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:1/v1"),
    ],
)
async def test_with_a_key_or_a_service_of_ones_own_it_is_minicode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
):
    monkeypatch.setenv(variable, value)
    async with CodeSDK.open() as sdk:
        session = await sdk.create_session(workspace=tmp_path)
        assert (await session.info()).runtime == "minicode"


async def test_with_a_script_in_place_of_a_model_it_is_minicode(tmp_path: Path):
    async with CodeSDK.open() as sdk:
        session = await sdk.create_session(workspace=tmp_path, plays=parse_object(SCRIPT, "test"))
        assert (await session.info()).runtime == "minicode"
        row = await sdk.service.execute(CreateSession(workspace=str(tmp_path), script=SCRIPT))
        assert row.runtime == "minicode"


async def test_without_either_the_error_says_what_to_set_and_no_session_is_made(tmp_path: Path):
    async with CodeSDK.open() as sdk:
        with pytest.raises(InvalidRequest) as raised:
            await sdk.create_session(workspace=tmp_path)
        assert await sdk.sessions() == []
    assert str(raised.value) == (
        "No runtime is named, and minicode, which would be used, has no model to ask. There is no key for anthropic or"
        " openai or gemini. Set ANTHROPIC_API_KEY or OPENAI_API_KEY or GEMINI_API_KEY where CodeSDK runs; or store a"
        " key: codesdk keys add PROVIDER. For a service of your own, OPENAI_COMPATIBLE_BASE_URL has its address. Or name a"
        " runtime that is ready: scripted."
    )


async def test_a_runtime_of_the_application_is_named_and_one_that_the_operator_does_not_permit_is_not(
    tmp_path: Path,
):
    mine: dict[str, Runtime] = {"mine": _Own(), "lost": _Lost(), "raising": _Raising()}
    permits = Permits(runtimes=("minicode", *mine))
    async with CodeSDK.open(runtimes=mine, permits=permits) as sdk:
        with pytest.raises(InvalidRequest, match=r" Or name a runtime that is ready: mine\.$"):
            await sdk.create_session(workspace=tmp_path)
    async with CodeSDK.open(permits=Permits(runtimes=("minicode",))) as sdk:
        with pytest.raises(InvalidRequest) as raised:
            await sdk.create_session(workspace=tmp_path)
    assert str(raised.value).endswith(
        " No other runtime is ready either: `codesdk runtimes` says what each one lacks."
    )


async def test_a_runtime_that_does_not_say_whether_it_is_ready_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_module, "READY_S", 0.05)
    async with CodeSDK.open(
        runtimes={"hung": _Hung()}, permits=Permits(runtimes=("minicode", "hung"))
    ) as sdk:
        with pytest.raises(InvalidRequest, match="No other runtime is ready either"):
            await sdk.create_session(workspace=tmp_path)


class _Own(ScriptedRuntime):
    @property
    def name(self) -> str:
        return "mine"


class _Lost(_Own):
    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=False, problem="It is not there.")


class _Raising(_Own):
    async def check_available(self, env: RuntimeEnv) -> Availability:
        raise SystemExit


class _Hung(_Own):
    async def check_available(self, env: RuntimeEnv) -> Availability:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_key_that_the_caller_may_not_use_is_none(tmp_path: Path):
    providers: dict[Wire, Provider] = {
        "anthropic": Provider(origin="https://api.anthropic.com", key="a-key-of-nobody")
    }
    async with CodeSDK.open(providers=providers, permits=Permits(share_keys=False)) as sdk:
        with pytest.raises(InvalidRequest, match=r"There is no key for .* that ann may use"):
            await sdk.as_principal("ann").create_session(workspace=tmp_path)
        mine = await sdk.create_session(workspace=tmp_path)
        assert (await mine.info()).runtime == "minicode"


async def test_an_operator_who_does_not_permit_minicode_is_heeded(tmp_path: Path):
    async with CodeSDK.open(permits=Permits(runtimes=("scripted",))) as sdk:
        with pytest.raises(Forbidden, match="minicode"):
            await sdk.create_session(workspace=tmp_path, plays=parse_object(SCRIPT, "test"))
