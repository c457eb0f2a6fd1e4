"""Executables as runtimes of an SDK, and its own runtimes hosted as processes: only the operator says so."""

import sys
from pathlib import Path

import pytest
from tests.runtimes.external.adapters import LIAR

from codesdk import CodeSDK, InvalidRequest, SessionSettings
from codesdk.contract.errors import CodeSDKError

SCRIPT = {"turns": [{"steps": [{"text": "Hello."}]}]}


def liar(plan: str = "{}") -> list[str]:
    return [sys.executable, "-c", LIAR, plan]


async def test_an_executable_is_a_runtime_and_one_that_does_not_speak_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
):
    async with CodeSDK.open(external={"good": liar(), "broken": "/no/such/program --x"}) as sdk:
        session = await sdk.create_session(runtime="external:good")
        assert (await (await session.start("Go.")).result()).text == "Hello."
        with pytest.raises(CodeSDKError, match="/no/such/program") as raised:
            await sdk.create_session(runtime="external:broken")
        assert raised.value.code == "RUNTIME_UNAVAILABLE"
        ready = await sdk.runtime_auth("external:broken")
        assert not ready.available.ok
        assert (await sdk.runtime_auth("external:good")).available.version == "1"
    assert [record.levelname for record in caplog.records if "/no/such/program" in record.message] == [
        "WARNING"
    ]


@pytest.mark.slow
async def test_an_executable_that_says_nothing_does_not_keep_the_sdk_from_opening(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("codesdk.runtimes.external.runtime.introduced.__wrapped__.__defaults__", (0.05,))
    async with CodeSDK.open(external={"slow": liar('{"initialize": [{"hang": true}]}')}) as sdk:
        with pytest.raises(CodeSDKError, match="has not said yet what it is") as raised:
            await sdk.create_session(runtime="external:slow")
        assert (raised.value.code, raised.value.retryable) == ("RUNTIME_UNAVAILABLE", True)


async def test_a_session_cannot_name_an_executable_that_the_operator_did_not():
    async with CodeSDK.open() as sdk:
        with pytest.raises(InvalidRequest, match="--external other=COMMAND"):
            await sdk.create_session(runtime="external:other")


@pytest.mark.parametrize(
    ("external", "why"),
    [
        ({"a b": "true"}, "cannot name an external runtime"),
        ({"a": ""}, "is empty"),
        ({"a": "'"}, "cannot be split"),
        ({"a": 1}, "expected commands by name"),
        ({"../a": "true"}, "cannot name an external runtime"),
    ],
)
async def test_a_command_that_cannot_be_is_refused_before_anything_is_opened(external: dict, why: str):
    with pytest.raises(InvalidRequest, match=why):
        async with CodeSDK.open(external=external):
            pass


@pytest.mark.slow
async def test_built_in_runtimes_are_hosted_as_processes(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", hosting="subprocess") as sdk:
        session = await sdk.create_session(
            runtime="scripted",
            workspace=tmp_path,
            settings=SessionSettings(runtime_config={"script": SCRIPT}),
        )
        assert (await (await session.start("Go.")).result()).text == "Hello."
        created = await anext(session.events())
        assert created.type == "session.created"
        assert created.payload.isolation.mode == "subprocess"
        assert (await sdk.runtime_auth("scripted")).available.ok


ACCOUNT = """
import json, os, sys
from pathlib import Path

login = Path(os.environ["CODESDK_LOGIN_DIR"]) / "login"


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answered():
    return json.loads(sys.stdin.readline())["result"]


for line in sys.stdin:
    message = json.loads(line)
    result = {}
    match message["method"]:
        case "initialize":
            capabilities = {"login_traffic": ["beside"], "auth_model": "oauth_local"}
            result = {"protocol_version": 1, "name": "a", "version": "1", "capabilities": capabilities}
        case "check_available":
            result = {"ok": True}
        case "auth_status":
            ok = login.exists()
            result = {"ok": ok, "logged_in": ok, "auth_model": "oauth_local", "problem": None if ok else "Nobody is logged in."}
        case "ensure_login":
            send(id=1, method="show", params={"prompt": {"message": "Wait."}})
            answered()
            send(id=2, method="ask", params={"prompt": {"message": "The code?", "url": "http://127.0.0.1/"}})
            login.write_text(answered()["answer"])
            result = {"logged_in": True, "account_label": "ada"}
    send(id=message["id"], result=result)
    if message["method"] == "start_task":
        task = message["params"]["task"]["task_id"]
        send(method="item", params={"task_id": task, "item": {"type": "finished", "stop_reason": login.read_text()}})
"""


async def test_a_login_of_an_executables_own_is_kept_in_its_namespace(tmp_path: Path):
    command = {"account": [sys.executable, "-c", ACCOUNT]}
    name, data = "external:account", tmp_path / "data"
    async with CodeSDK.open(data, external=command, logins=(f"{name}=beside",)) as sdk:
        session = await sdk.create_session(runtime=name, workspace=tmp_path)
        with pytest.raises(CodeSDKError, match="Nobody is logged in") as raised:
            await (await session.start("Go.")).result()
        assert raised.value.code == "AUTH_REQUIRED"
        state = await sdk.engine.begin_login(name)
        while state.outcome is None:
            if state.asks:
                await sdk.engine.logins.answer(state.login_id, "local", "1234")
            state = await sdk.engine.logins.state(state.login_id, "local", 10.0)
        assert (state.outcome.logged_in, state.outcome.account_label) == (True, "ada")
        assert (await (await session.start("Go.")).result()).stop_reason == "1234"
        folder = next((data / "runtimes").rglob("login/state/login"))
        assert folder.read_text() == "1234"


async def test_logins_of_executables_are_switched_on_with_the_way_they_go():
    with pytest.raises(InvalidRequest, match="Say how logins of external:x go"):
        async with CodeSDK.open(logins=("external:x",)):
            pass
