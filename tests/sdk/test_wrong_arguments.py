"""Whatever is given in place of what is expected: one error that names the argument, and nothing is stored."""

import asyncio
import inspect
import io
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings, strategies as st
from tests.contract.test_actions import SAMPLES, Wire

from codesdk import (
    Budget,
    Budgets,
    CodeSDK,
    CodeSDKError,
    InvalidRequest,
    Limits,
    SessionSettings,
    load_cassette,
    load_policy,
    load_script,
    parse_script,
)
from codesdk.client import CodeSDKClient
from codesdk.client.service import HttpService
from codesdk.contract.actions import ACTIONS, Action, StartTask
from codesdk.contract.retention import Retention
from codesdk.engine import Permits
from codesdk.gateway import Provider
from codesdk.sandbox import SandboxLimits
from codesdk.tools import ExecOptions, FetchOptions, ToolRegistry
from codesdk.tools.mcp_client.servers import StdioServer

JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.sampled_from([10**400, math.nan, math.inf, -0.5, -1]),
        st.text(max_size=8),
        st.sampled_from(["\ud800", "AUTO", "a\0b", ""]),
        st.binary(max_size=8),
        st.builds(object),
        st.just(Path("policy.toml")),
        st.just(Budget(tokens=-1)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.sets(st.integers(), max_size=2),
        st.dictionaries(
            st.one_of(st.text(max_size=5), st.integers(), st.binary(max_size=3)), inner, max_size=3
        ),
    ),
    max_leaves=6,
)
FIELDS = [(kind, field) for kind in ACTIONS for field in msgspec.structs.fields(kind)]


def is_json(value: object) -> bool:
    """Return whether JSON can say a value as it is."""
    match value:
        case None | bool():
            return True
        case int():
            return value.bit_length() <= 64
        case float():
            return math.isfinite(value)
        case str():
            return not any("\ud800" <= char <= "\udfff" for char in value)
        case list():
            return all(map(is_json, value))
        case dict():
            return all(isinstance(key, str) and is_json(key) and is_json(item) for key, item in value.items())
        case msgspec.Struct():  # stands for the map of its fields, also inside of one
            return is_json(msgspec.to_builtins(value))
        case _:
            return False


def fits(value: object, kind: Any) -> bool:
    """Return whether a field of a type may have this value, judged without the code under test."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if not is_json(value):
        return False
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except (ValueError, TypeError):
        return False
    return True


@pytest.mark.slow
def test_wrong_values_in_any_field_of_any_action_are_refused_and_nothing_is_stored():
    with asyncio.Runner() as runner:
        opened = CodeSDK.open()
        sdk = runner.run(opened.__aenter__())

        @given(place=st.sampled_from(FIELDS), value=JUNK)
        @settings(deadline=None, max_examples=300, report_multiple_bugs=False)
        def attempt(place: Any, value: Any) -> None:
            kind, field = place
            assume(not fits(value, field.type))
            action = msgspec.structs.replace(SAMPLES[kind], **{field.name: value})
            with pytest.raises(InvalidRequest) as refused:
                runner.run(sdk.service.execute(action))
            assert field.name in refused.value.message or is_inside(value, refused.value.message)

        attempt()
        assert runner.run(sdk.sessions()) == []
        runner.run(opened.__aexit__(None, None, None))


def is_inside(value: object, message: str) -> bool:
    """Return whether the error names a field of a struct that was given, which it may do by itself."""
    return isinstance(value, msgspec.Struct) and any(name in message for name in value.__struct_fields__)


def test_every_field_of_every_action_is_met_by_a_wrong_value():
    """The walk above draws; this goes through all of them with the values that people do give."""

    async def run() -> None:
        async with CodeSDK.open() as sdk:
            for kind, field in FIELDS:
                wrong = [value for value in COMMON if not fits(value, field.type)]
                assert len(wrong) >= 5
                for value in wrong:
                    action = msgspec.structs.replace(SAMPLES[kind], **{field.name: value})
                    with pytest.raises(InvalidRequest, match=field.name):
                        await sdk.service.execute(action)
            assert await sdk.sessions() == []

    asyncio.run(run())


COMMON: list[Any] = [3.5, b"bytes", Path("file"), object(), {1: 2}, [[object()]], math.nan, -1, {"a": b"b"}]


@pytest.mark.parametrize("kind", ACTIONS, ids=lambda kind: kind.__name__)
async def test_the_client_sends_nothing_wrong(kind: type[Action[Any]]):
    """In JSON bytes would be text, and a tuple a list: what comes out must not depend on where sessions run."""
    for field in msgspec.structs.fields(kind):
        wire, action = Wire(), msgspec.structs.replace(SAMPLES[kind], **{field.name: b"bytes"})
        with pytest.raises(InvalidRequest, match=field.name):
            await HttpService(wire).execute(action)  # type: ignore[arg-type]
        assert wire.sent == ("", "", None)


async def test_the_client_connects_to_nothing_wrong():
    for name, value in (("url", 3), ("token", b"token"), ("data_dir", 3)):
        options: dict[str, Any] = {"url": "http://127.0.0.1:9"} | {name: value}
        with pytest.raises(InvalidRequest, match=name):
            async with CodeSDKClient.connect(**options):
                pass


NEGATIVE = Budgets(task=Budget(tokens=-1))
SERVER = StdioServer(command="/no/such/program")
CREATE: list[tuple[str, Any, str]] = [
    ("runtime", 3, "runtime: expected `str | null`, got `int`"),
    ("runtime", "nobody", 'There is no runtime "nobody"'),
    ("workspace", 3, "workspace: expected a path, got `int`"),
    ("workspace", b"/", "workspace: expected a path, got `bytes`"),
    ("workspace", None, "workspace: expected a path, got `NoneType`"),
    ("workspace", "/no/such/place", "The workspace '/no/such/place' is not a directory"),
    ("permission_mode", "AUTO", "permission_mode: invalid enum value 'AUTO', expected ask, auto or yolo"),
    ("interaction_mode", True, "interaction_mode: expected `str`, got `bool`"),
    ("native_tools", "on", "native_tools: invalid enum value 'on', expected off"),
    ("native_tools", [1], "native_tools[0]: expected `str`, got `int`"),
    ("title", b"x", "title: expected `str | null`, got `bytes`"),
    ("model", 3, "model: expected `str | null`, got `int`"),
    ("isolation", "total", "isolation: invalid enum value 'total', expected "),
    ("credential_namespace", 3, "credential_namespace: expected `str | null`, got `int`"),
    ("project_id", 3, "project_id: expected `str | null`, got `int`"),
    ("budgets", NEGATIVE, "tokens must be a whole number, at least 0 and at most 9007199254740991, not -1"),
    ("budgets", 5, "budgets: expected `object | null`, got `int`"),
    ("settings", 5, "settings: expected `object`, got `int`"),
    ("settings", SessionSettings(gateway="none"), "settings.gateway: invalid enum value 'none', expected "),  # type: ignore[arg-type]
    ("settings", {"no_such": 1}, "settings: object contains unknown field `no_such`"),
    (
        "settings",
        SessionSettings(runtime_config={"script": b"x"}),
        "runtime_config.… holds a value of the type bytes",
    ),
    (
        "settings",
        SessionSettings(mcp_servers=["x"]),
        "The settings name the MCP servers x, and nobody has said how to reach them. Give the session mcp_servers",
    ),
    ("plays", {"turns": []}, "plays: expected a Script, a cassette or a ScriptedModel, got `dict`"),
    ("plays", "script.yaml", "plays: expected a Script, a cassette or a ScriptedModel, got `str`"),
    ("plays", [1], "plays: expected a Script, a cassette or a ScriptedModel, got `list`"),
    ("recording", 3, "recording: expected `str | null`, got `int`"),
    ("mcp_servers", [SERVER], "mcp_servers: expected servers by name, got `list`"),
    ("mcp_servers", {"a": object()}, "mcp_servers.… holds a value of the type object"),
    ("mcp_servers", {"a": {"type": "smoke"}}, "mcp_servers[...].type: invalid value 'smoke'"),
    ("secrets", "one-secret", "secrets: expected a list, got `str`"),
    ("secrets", [3], "secrets[0]: expected `str`, got `int`"),
    ("secrets", 3, "secrets: expected a list, got `int`"),
    ("idempotency_key", "", "An idempotency key is 1 to 200 visible ASCII characters"),
    ("idempotency_key", 3, "An idempotency key is 1 to 200 visible ASCII characters"),
]


async def test_a_session_is_not_created_with_any_of_these(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        parameters = set(inspect.signature(sdk.create_session).parameters)
        assert {name for name, _, _ in CREATE} == parameters
        for name, value, words in CREATE:
            good: dict[str, Any] = {"runtime": "scripted", "workspace": tmp_path}
            with pytest.raises(InvalidRequest) as refused:
                await sdk.create_session(**good | {name: value})
            assert words in refused.value.message
        assert await sdk.sessions() == []
    assert not list((tmp_path / "data").glob("equipment/*"))


READS: list[tuple[str, dict[str, Any]]] = [
    ("limit", {"limit": -1}),
    ("limit", {"limit": 0}),
    ("limit", {"limit": "10"}),
    ("after", {"after": 3}),
    ("status", {"status": "CLOSED"}),
]


async def test_what_only_reads_is_checked_too(tmp_path: Path):
    wrong: Any = b"wrong"
    async with CodeSDK.open() as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        calls = [(name, sdk.sessions(**options)) for name, options in READS]
        calls += [
            ("session_id", sdk.session(wrong)),
            ("session_id", sdk.delete_session(wrong)),
            ("data", sdk.put_artifact("text", "text/plain")),  # type: ignore[arg-type]
            ("content_type", sdk.put_artifact(b"", wrong)),
            ("start", sdk.read_artifact("art_1", -1)),
            ("end", sdk.read_artifact("art_1", 0, wrong)),
            ("artifact_id", sdk.read_artifact(wrong)),
            ("seq", session.event(-1)),
            ("limit", session.tasks(limit=-1)),
            ("limit", session.artifacts(limit=wrong)),
            ("task_id", session.task_info(wrong)),
            ("message", session.start(wrong)),
            ("message", session.start([{"role": "user"}])),  # type: ignore[list-item]
            ("message", session.resume(wrong)),
            ("message", session.steer(wrong)),
            ("on_busy", session.start("Go", on_busy="wait")),  # type: ignore[arg-type]
            ("scope", session.approve("call_1", scope="always")),  # type: ignore[arg-type]
            ("permission_mode", session.set(permission_mode="AUTO")),  # type: ignore[arg-type]
            ("timeout_s", session.suggest(timeout_s="5")),  # type: ignore[arg-type]
            ("timeout_s", session.suggest(timeout_s=-1)),
            ("runtime", sdk.runtime_auth(3)),  # type: ignore[arg-type]
        ]
        for name, call in calls:
            with pytest.raises(InvalidRequest, match=name):
                await call
        with pytest.raises(InvalidRequest, match="after_seq"):
            await anext(session.events(-1))
        with pytest.raises(InvalidRequest, match="str is not an action"):
            await sdk.service.execute("start")  # type: ignore[arg-type]
        for traced in (session.traced, sdk.traced):
            for name, words in TRACED.items():
                with pytest.raises(InvalidRequest, match=words):
                    traced(**{name: 3})  # type: ignore[arg-type]
        assert [row.session_id for row in await sdk.sessions()] == [session.id]
        assert await sdk.service.head(session.id) == 1


async def test_what_only_this_process_can_be_asked_is_checked_too(tmp_path: Path):
    wrong: Any = 3
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        for principal in (wrong, None, "", "a\ud800", "x" * 65, session.id):
            with pytest.raises(InvalidRequest, match="principal"):
                sdk.as_principal(principal)  # type: ignore[arg-type]
        target = io.BytesIO()
        for name, writing in (
            ("session_id", sdk.write_bundle(wrong, target)),
            ("target", sdk.write_bundle(session.id, "bundle.tar.gz")),  # type: ignore[arg-type]
            ("max_bytes", sdk.write_bundle(session.id, target, max_bytes=-5)),
            ("max_bytes", sdk.write_bundle(session.id, target, max_bytes="x")),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidRequest, match=name):
                await writing
        assert target.getvalue() == b""


@pytest.mark.parametrize("load", [load_script, load_policy, load_cassette])
@pytest.mark.parametrize("path", [3, b"file", None, "a\0b"])
def test_a_file_is_loaded_from_a_path_and_from_nothing_else(load: Any, path: object):
    with pytest.raises(InvalidRequest, match="path: expected a path"):
        load(path)


@pytest.mark.parametrize("script", [{"turns": []}, None, b"turns: []"])
def test_a_script_is_parsed_from_a_text_and_from_nothing_else(script: Any):
    with pytest.raises(InvalidRequest, match="Invalid argument: text: expected `str`"):
        parse_script(script, "here")
    with pytest.raises(InvalidRequest, match="Invalid argument: source: expected `str`"):
        parse_script("turns: []", script)


TRACED = {"request_id": "A request id", "client_id": "A client id", "traceparent": "The traceparent"}


async def test_what_keeps_and_removes_in_a_directory_is_checked_too(tmp_path: Path):
    wrong: Any = 3
    async with CodeSDK.open(tmp_path / "data") as sdk:
        for name, collecting in (
            ("retention", sdk.collect(wrong)),
            ("max_age_days", sdk.collect(Retention(max_age_days=-1))),
            ("dry_run", sdk.collect(Retention(), dry_run="no")),  # type: ignore[arg-type]
            ("rewrite", sdk.collect(Retention(), rewrite=wrong)),
        ):
            with pytest.raises(InvalidRequest, match=name):
                await collecting
        keys: list[tuple[str, tuple[Any, Any, Any]]] = [
            ("The name of a principal", (wrong, "openai", "a-long-enough-key")),
            ("There is no provider '3'", ("ann", wrong, "a-long-enough-key")),
            ("This is not a key", ("ann", "openai", 5)),
            ("This is not a key", ("ann", "openai", b"a-long-enough-key")),
        ]
        for words, arguments in keys:
            with pytest.raises(InvalidRequest, match=words):
                sdk.keys.add(*arguments)
        assert sdk.keys.stored() == []
    assert not (tmp_path / "data" / "keys.json").exists()


OPEN: list[tuple[str, Any]] = [
    ("data_dir", 3),
    ("data_dir", b"/tmp"),
    ("runtimes", ["codex"]),
    ("runtimes", {"codex": "codex"}),
    ("external", ["python agent.py"]),
    ("external", {"small": [1]}),
    ("hosting", "server_side"),
    ("tools", [print]),
    ("run", True),
    ("run", ["pytest"]),
    ("fetch", True),
    ("allow", ExecOptions(allow=["git status"])),
    ("allow", ExecOptions(allow="git")),
    ("allow", ExecOptions(allow=3)),  # type: ignore[arg-type]
    ("sandbox", ExecOptions(allow=[["git"]], sandbox="docker")),  # type: ignore[arg-type]
    ("sandbox_options", ExecOptions(allow=[["git"]], sandbox_options=["image"])),  # type: ignore[arg-type]
    ("no_such", ExecOptions(allow=[["git"]], sandbox="host", sandbox_options={"no_such": 1})),
    ("image", ExecOptions(allow=[["git"]], sandbox="oci")),
    ("image", ExecOptions(allow=[["git"]], sandbox="oci", sandbox_options={"image": 3})),
    ("readable", ExecOptions(allow=[["git"]], sandbox_options={"readable": "/opt"})),
    ("hosts", ExecOptions(allow=[["git"]], hosts="localhost")),
    ("writable", ExecOptions(allow=[["git"]], writable="no")),  # type: ignore[arg-type]
    ("wall_s", ExecOptions(allow=[["git"]], limits=SandboxLimits(wall_s=-1.0))),
    ("hosts", FetchOptions(hosts="localhost")),
    ("cannot be allowed", FetchOptions(hosts=["not a host"])),
    ("policy", 3),
    ("limits", {"max_tasks": 3}),
    ("max_tasks", Limits(max_tasks=-1)),
    ("secrets", "secret"),
    ("secrets", [b"secret"]),
    ("providers", {"anthropic": "https://example.com"}),
    ("there is no format 'openai'. There are: ", {"openai": Provider(origin="https://example.com")}),
    ("origin", {"chat": Provider(origin=3)}),  # type: ignore[arg-type]
    ("synchronous", "maybe"),
    ("principal", ""),
    ("principal", None),
    ("principal", "a\ud800"),
    ("principal", "x" * 65),
    ("hosting", None),
    ("synchronous", None),
    ("observers", None),
    ("subscribers", None),
    ("logins", None),
    ("share", None),
    ("goes_on", None),
    ("secrets", None),
    ("secrets", {"API_KEY": "a-secret"}),
    ("principal", 3),
    ("allow_yolo", "no"),
    ("allow_untested", 1),
    ("permits", {"allow_yolo": True}),
    ("runtimes", Permits(runtimes="codex")),  # type: ignore[arg-type]
    ("observers", print),
    ("observers", [print]),
    ("subscribers", [print]),
    ("share", "no"),
    ("logins", "codex"),
    ("goes_on", "no"),
    ("extensions", ["folder"]),
]


async def test_an_sdk_is_not_opened_with_any_of_these(tmp_path: Path):
    names = {Permits: "permits", Limits: "limits", ExecOptions: "run", FetchOptions: "fetch"}

    def argument(name: str, value: Any) -> str:
        is_provider = isinstance(value, dict) and any(isinstance(one, Provider) for one in value.values())
        return "providers" if is_provider else names.get(type(value), name)

    tried = {argument(name, value) for name, value in OPEN}
    assert tried == set(inspect.signature(CodeSDK.open).parameters)
    for name, value in OPEN:
        options: dict[str, Any] = {"data_dir": tmp_path / "data"} | {argument(name, value): value}
        with pytest.raises(InvalidRequest, match=name):
            async with CodeSDK.open(**options):
                pass
    assert not (tmp_path / "data").exists()


async def test_options_of_tools_that_are_replaced_are_refused(tmp_path: Path):
    given: list[dict[str, Any]] = [
        {"run": ExecOptions(allow=[["git"]], sandbox="host")},
        {"fetch": FetchOptions(hosts=["example.com"])},
    ]
    for options in given:
        (name,) = options
        with pytest.raises(InvalidRequest, match=rf"{name}: .*codesdk\.tools\.\w+_tool"):
            async with CodeSDK.open(tmp_path / "data", tools=ToolRegistry(), **options):
                pass
    assert not (tmp_path / "data").exists()


async def test_a_session_whose_servers_do_not_start_is_not_left_behind(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        with pytest.raises(CodeSDKError, match="The MCP server gone cannot be used"):
            await sdk.create_session(
                runtime="scripted",
                workspace=tmp_path,
                mcp_servers={"gone": SERVER},
                secrets=["a-long-secret"],
                idempotency_key="once",
            )
        assert (await sdk.sessions(), sdk.engine.open_sessions) == ([], 0)
        assert not list((tmp_path / "data").glob("equipment/*"))
        # The key is still free: nothing was done under it.
        await sdk.create_session(runtime="scripted", workspace=tmp_path, idempotency_key="once")


async def test_a_session_whose_equipment_cannot_be_kept_is_not_left_behind(tmp_path: Path):
    """A file stands where the folder of the sealed equipment belongs."""
    async with CodeSDK.open(tmp_path / "data") as sdk:
        (tmp_path / "data" / "equipment").write_text("")
        with pytest.raises(CodeSDKError):
            await sdk.create_session(runtime="scripted", workspace=tmp_path, secrets=["a-long-secret"])
        assert (await sdk.sessions(), sdk.engine.open_sessions) == ([], 0)


def test_a_message_of_megabytes_is_checked_without_being_copied():
    """The check walks over structs; a text is passed on as it is."""
    text = "x" * 4_000_000
    from codesdk.contract.validation import checked

    assert checked(StartTask(session_id="ses_1", message=text)).message is text
