"""What a session is given to play is played, or refused with nothing stored: the provider is never asked instead."""

from pathlib import Path
from typing import Any

import pytest
from tests.gateway.agent import THROUGH_GATEWAY, agent_runtime

from codesdk import CodeSDK, Conflict, InvalidRequest, Session, SessionSettings
from codesdk.contract.access import AuthStatus
from codesdk.contract.actions import CreateSession, EquipSession
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.runtime import RuntimeEnv
from codesdk.engine import Permits
from codesdk.gateway import ScriptedModel
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, done

PLAIN = {"turns": [{"steps": [{"text": "Played."}]}], "loop": True}
SCRIPT = parse_object(PLAIN, "script")


def opened(data: Path | None = None) -> Any:
    return CodeSDK.open(
        data, runtimes={"agent": agent_runtime(), "blind": FakeRuntime(name="blind")}, providers={}
    )


async def said(session: Session) -> str:
    return (await (await session.start("Go")).result()).text


@pytest.mark.parametrize("mode", ["passthrough", "record"])
async def test_a_session_that_asks_its_provider_takes_nothing_to_play(tmp_path: Path, mode: Any):
    async with opened(tmp_path / "data") as sdk:
        settings = SessionSettings(gateway=mode)
        session = await sdk.create_session(runtime="agent", workspace=tmp_path, settings=settings)
        head = await sdk.service.head(session.id)
        words = f"Session {session.id} asks its provider's model, so a .* would not be played: .* Create a session"
        for plays in (SCRIPT, ScriptedModel(SCRIPT), []):
            with pytest.raises(InvalidRequest, match=words):
                await sdk.session(session.id, plays=plays, secrets=["a-long-secret"])
        recording = await sdk.create_session(runtime="agent", workspace=tmp_path, plays=SCRIPT)
        for given in ({"script": PLAIN}, {"recording": recording.id}):
            with pytest.raises(InvalidRequest):
                await sdk.service.execute(EquipSession(session_id=session.id, **given))
        assert await sdk.service.head(session.id) == head
        assert not (tmp_path / "data" / "equipment" / session.id).exists()
        assert sdk._gateway is not None
        assert not sdk._gateway.plays(session.id)
        assert (await sdk.session(session.id, secrets=["a-long-secret"])).id == session.id


async def test_a_session_plays_what_is_of_the_kind_that_it_was_created_with(tmp_path: Path):
    async with opened(tmp_path / "data") as sdk:
        session = await sdk.create_session(runtime="agent", workspace=tmp_path, plays=SCRIPT)
        with pytest.raises(
            InvalidRequest, match="plays a script, so a recording that it is given would not be"
        ):
            await sdk.session(session.id, plays=[])
        other = parse_object({"turns": [{"steps": [{"text": "Another."}]}]}, "script")
        assert await said(await sdk.session(session.id, plays=other)) == "Another."
    async with opened(tmp_path / "data") as sdk:
        assert await said(await sdk.session(session.id, plays=SCRIPT)) == "Played."


async def test_what_was_not_sealed_is_named_before_a_task_starts_without_it(tmp_path: Path):
    async with opened(tmp_path / "data") as sdk:
        session = await sdk.create_session(runtime="agent", workspace=tmp_path, plays=ScriptedModel(SCRIPT))
        assert await said(session) == "Played."
    async with opened(tmp_path / "data") as sdk:
        again = await sdk.session(session.id)
        with pytest.raises(Conflict, match="plays a script in place of a provider's model") as refused:
            await again.start("Go")
        assert refused.value.details == {"equipment_missing": ["script"]}
        assert len(await again.tasks()) == 1
        assert await said(await sdk.session(session.id, plays=ScriptedModel(SCRIPT))) == "Played."


CREATE: list[tuple[str, dict[str, Any]]] = [
    (
        "The runtime blind asks no model through the gateway, so no model's answers can be recorded there",
        {"settings": SessionSettings(gateway="record")},
    ),
    (
        "The runtime blind asks no model through the gateway, so a script would not be played",
        {"script": PLAIN},
    ),
    ("so a script would not be played there", {"settings": SessionSettings(gateway="scripted")}),
    ("so a recording would not be played there", {"settings": SessionSettings(gateway="replay")}),
    (
        "The settings say gateway replay, but what the session is given to play needs scripted",
        {"runtime": "agent", "script": PLAIN, "settings": SessionSettings(gateway="replay")},
    ),
    (
        "give it a script or a recording, not both",
        {"runtime": "agent", "script": PLAIN, "recording": "ses_1"},
    ),
    ("turns", {"runtime": "agent", "script": {}}),
]


@pytest.mark.parametrize(("words", "given"), CREATE)
async def test_a_session_is_not_created_to_play_or_record_what_it_would_not(
    tmp_path: Path, words: str, given: dict[str, Any]
):
    good: dict[str, Any] = {"runtime": "blind", "workspace": str(tmp_path)}
    async with opened() as sdk:
        with pytest.raises(InvalidRequest, match=words):
            await sdk.service.execute(CreateSession(**good | given))
        assert await sdk.sessions() == []


async def test_the_scripted_runtime_takes_its_script_in_its_options_and_nowhere_else(tmp_path: Path):
    async with opened() as sdk:
        for given in (
            {"plays": SCRIPT},
            {"plays": ScriptedModel(SCRIPT)},
            {"settings": {"gateway": "record"}},
        ):
            with pytest.raises(
                InvalidRequest, match="The runtime scripted asks no model through the gateway"
            ):
                await sdk.create_session(runtime="scripted", workspace=tmp_path, **given)
        with pytest.raises(InvalidRequest, match="plays or a recording, not both"):
            await sdk.create_session(runtime="agent", workspace=tmp_path, plays=SCRIPT, recording="ses_1")
        assert await sdk.sessions() == []


@pytest.mark.parametrize("given", [{"plays": SCRIPT}, {"settings": SessionSettings(gateway="record")}])
async def test_a_session_does_not_move_to_where_it_would_not_play_or_record(tmp_path: Path, given: Any):
    async with opened() as sdk:
        session = await sdk.create_session(runtime="agent", workspace=tmp_path, **given)
        with pytest.raises(InvalidRequest, match="The runtime blind asks no model through the gateway"):
            await session.move("blind")
        assert (await session.info()).runtime == "agent"


class Beside(FakeRuntime):
    """A program that uses an account of its own, beside the gateway."""

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=True, auth_model="both", traffic="beside")


@pytest.mark.parametrize("mode", ["passthrough", "record"])
async def test_a_task_whose_requests_go_beside_the_gateway_says_that_nothing_is_recorded(
    tmp_path: Path, mode: Any
):
    runtime = Beside([done()], capabilities=THROUGH_GATEWAY)
    permits = Permits(logins={runtime.name: "beside"})
    async with CodeSDK.open(runtimes={runtime.name: runtime}, permits=permits) as sdk:
        settings = SessionSettings(gateway=mode)
        session = await sdk.create_session(runtime=runtime.name, workspace=tmp_path, settings=settings)
        task = await session.start("Go")
        notices = [event.payload async for event in task.events() if event.type == "runtime.notice"]
        told = [one for one in notices if isinstance(one, RuntimeNotice) and "not recorded" in one.message]
        assert len(told) == (mode == "record")
