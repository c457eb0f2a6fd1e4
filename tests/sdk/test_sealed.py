"""Equipment that is sealed beside a session: kept over a restart, never in the log, gone with the session."""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sdk.test_equipment import OUTSIDE, calling

from codesdk import CodeSDK, Conflict
from codesdk.contract.actions import Caller, CreateSession, ForkSession
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.codec import decode
from codesdk.contract.errors import CodeSDKError, Forbidden, StorageFailure
from codesdk.contract.events import SessionCreatedEvent, SettingsChangedEvent
from codesdk.contract.retention import Retention
from codesdk.contract.tools import Actor
from codesdk.engine import unseal
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.engine.sessions.registry import SessionRegistry
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, delta, done
from codesdk.tools.mcp_client.servers import StdioServer

SECRET = "correct-horse-battery"
TOKEN = "token-of-the-server-9931"


def talker() -> dict[str, Any]:
    capabilities = Capabilities(input_capture="exact")
    return {"fake": FakeRuntime([delta(f"It is {SECRET}, {TOKEN}."), done()], capabilities=capabilities)}


def server() -> dict[str, StdioServer]:
    return {
        "outside": StdioServer(command=sys.executable, args=(str(OUTSIDE),), env={"OUTSIDE_TOKEN": TOKEN})
    }


def sealed_files(data: Path) -> list[str]:
    folder = data / "equipment"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


async def test_secrets_of_servers_are_known_after_a_restart_before_the_servers_run(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        session = await sdk.create_session(
            runtime="fake", workspace=tmp_path, mcp_servers=server(), secrets=[SECRET]
        )
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        redactor = await sdk.engine.redactor_of(session.id)
        assert {SECRET, TOKEN} <= set(redactor.secrets)
        again = await sdk.session(session.id)
        result = await (await again.start("Go")).result()
        assert (SECRET in result.text, TOKEN in result.text) == (False, False)
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
        assert (await replay_session(sdk.archive.log, sdk.archive.blobs, session.id))[1] == []


async def test_a_secret_that_is_the_name_of_a_kind_does_not_lock_the_session(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", runtimes=talker()) as sdk:
        session = await sdk.create_session(
            runtime="fake", workspace=tmp_path, secrets=["secrets", "recording"]
        )
    async with CodeSDK.open(tmp_path / "data", runtimes=talker()) as sdk:
        assert (await (await (await sdk.session(session.id)).start("Go")).result()).state == "completed"


async def test_a_session_without_equipment_writes_no_file(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", runtimes=talker()) as sdk:
        await sdk.create_session(runtime="fake", workspace=tmp_path)
    assert not (tmp_path / "data" / "equipment").exists()


async def test_equipping_adds_secrets_replaces_servers_and_is_named_in_the_log(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
        await sdk.session(session.id, mcp_servers=server())
        await sdk.session(session.id, secrets=["another-secret"])
        await sdk.session(session.id, secrets=["another-secret"])
        store = sdk.engine.ports.equipment
        kept = await unseal(store, session.id)
        assert kept.secrets == [SECRET, TOKEN, "another-secret"]
        assert list(kept.mcp_servers) == ["outside"]
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        equipped = [e for e in events if isinstance(e, SessionCreatedEvent | SettingsChangedEvent)]
        assert [(event.type, event.payload.sealed) for event in equipped] == [
            ("session.created", ["secrets"]),
            ("session.settings_changed", ["secrets", "mcp_servers"]),
        ]
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
        assert (await replay_session(sdk.archive.log, sdk.archive.blobs, session.id))[1] == []


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "empty", "exchanged"])
async def test_lost_equipment_is_said_and_nothing_runs_until_it_is_given_again(tmp_path: Path, damage: str):
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
        other = await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=["of-the-other"])
    path = data / "equipment" / session.id
    whole = path.read_bytes()
    match damage:
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(whole[:-3])
        case "flipped":
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        case "empty":
            path.write_bytes(b"")
        case _:
            path.write_bytes((data / "equipment" / other.id).read_bytes())
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        again = await sdk.session(session.id)
        for attempt in (again.start("Go"), again.resume(), again.fork(), again.set(title=SECRET)):
            with pytest.raises(Conflict, match="missing or damaged: secrets") as refused:
                await attempt
            assert refused.value.details == {"equipment_missing": ["secrets"]}
        assert (await (await (await sdk.session(other.id)).start("Go")).result()).state == "completed"
        await sdk.session(session.id, secrets=[SECRET])
        assert SECRET not in (await (await again.start("Go")).result()).text
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        again = await sdk.session(session.id)
        assert SECRET not in (await (await again.start("Go")).result()).text


async def test_a_session_whose_equipment_is_lost_can_be_closed_and_deleted(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
    (data / "equipment" / session.id).write_bytes(b"damaged")
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        again = await sdk.session(session.id)
        await again.close()
        await sdk.delete_session(session.id)
    assert sealed_files(data) == []


async def test_a_server_that_is_gone_after_a_restart_is_said_and_tried_again(tmp_path: Path):
    data, program = tmp_path / "data", tmp_path / "server.py"
    program.write_text(OUTSIDE.read_text())
    servers = {"outside": StdioServer(command=sys.executable, args=(str(program),))}
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, mcp_servers=servers)
    program.rename(tmp_path / "moved.py")
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        again = await sdk.session(session.id)
        with pytest.raises(CodeSDKError, match="The MCP server outside cannot be used"):
            await again.start("Go")
        (tmp_path / "moved.py").rename(program)
        assert (await (await again.start("Go")).result()).state == "completed"


async def test_deleting_and_collecting_take_the_equipment_along(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        first, second = [
            await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET]) for _ in range(2)
        ]
        await sdk.delete_session(first.id)
        assert sealed_files(data) == [second.id]
        await sdk.collect(Retention(max_age_days=0))
        assert sealed_files(data) == []


async def test_a_fork_has_the_equipment_of_its_parent_and_keeps_it_when_the_parent_is_gone(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(
        data, runtimes={"scripted": calling("mcp.outside.echo", {"text": SECRET})}
    ) as sdk:
        session = await sdk.create_session(
            runtime="scripted", workspace=tmp_path, mcp_servers=server(), secrets=[SECRET]
        )
        fork = await session.fork()
        await sdk.delete_session(session.id)
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        assert sealed_files(data) == [fork.id]
        kept = await unseal(sdk.engine.ports.equipment, fork.id)
        assert (kept.secrets, list(kept.mcp_servers)) == ([SECRET, TOKEN], ["outside"])


async def test_who_may_not_give_servers_may_not_fork_them_either(tmp_path: Path):
    async with CodeSDK.open(runtimes=talker()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, mcp_servers=server())
        worker = Caller(actor=Actor(kind="user"), scopes=frozenset({"read", "run"}))
        with pytest.raises(Forbidden, match="mcp_servers needs a token with the scope admin"):
            await sdk.engine.execute(ForkSession(session_id=session.id), worker)


async def test_a_script_is_played_after_a_restart_without_being_given_again(tmp_path: Path):
    data = tmp_path / "data"
    script = parse_object({"turns": [{"steps": [{"text": "Hello."}]}], "loop": True}, "script")
    action = CreateSession(runtime="fake", workspace=str(tmp_path), script={"turns": [{"steps": []}]})
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        by_action = await sdk.service.execute(action)
        by_handle = await sdk.create_session(runtime="fake", workspace=tmp_path, plays=script)
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        for session_id in (by_action.session_id, by_handle.id):
            await (await (await sdk.session(session_id)).start("Go")).result()
            assert sdk._gateway is not None
            assert sdk._gateway.plays(session_id)


async def test_a_bundle_of_a_session_that_nobody_loaded_knows_its_secrets(tmp_path: Path):
    """Said before the session was told that it is a secret, and so in the log; the bundle must not hand it on."""
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        await (await session.start("Go")).result()
        await sdk.session(session.id, secrets=[SECRET])
    async with CodeSDK.open(data, runtimes=talker()) as sdk, CodeSDK.open(data) as beside:
        for each in (sdk, beside):
            packed = io.BytesIO()
            await each.write_bundle(session.id, packed)
            assert SECRET.encode() not in gzip.decompress(packed.getvalue())
            assert TOKEN.encode() in gzip.decompress(packed.getvalue())


# --- crashes and full disks ----------------------------------------------------------------------


async def test_equipment_is_sealed_before_the_first_event_and_swept_if_that_never_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data, seen = tmp_path / "data", list[list[str]]()

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        seen.append(sealed_files(data))
        raise Killed

    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        kept = await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
        monkeypatch.setattr(SessionRegistry, "_recorder", killed)
        with pytest.raises(Killed):
            await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
        monkeypatch.undo()
    assert [len(files) for files in seen] == [2]
    assert len(sealed_files(data)) == 2
    async with CodeSDK.open(data, runtimes=talker()):
        assert sealed_files(data) == [kept.id]


async def test_a_crash_between_the_end_of_a_session_and_that_of_its_equipment_is_cleaned_up(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
        await sdk.engine.ports.log.delete(session.id)
    assert sealed_files(data) == [session.id]
    async with CodeSDK.open(data, runtimes=talker()):
        assert sealed_files(data) == []


async def test_a_session_that_cannot_be_sealed_is_not_created(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(data, runtimes=talker()) as sdk:
        (data / "equipment").write_text("in the way")
        with pytest.raises(StorageFailure, match="cannot be sealed"):
            await sdk.create_session(runtime="fake", workspace=tmp_path, secrets=[SECRET])
        assert (await sdk.sessions(), sdk.engine.open_sessions) == ([], 0)
