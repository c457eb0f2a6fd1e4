"""The acceptance lines of document 004, each as a test of its own."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from tests.minicode.rig import CANARY, FAMILIES, alone, endpoint, variables

import codesdk.minicode as surface
from codesdk.contract.errors import CodeSDKError, Conflict, InvalidRequest
from codesdk.contract.messages import Text, ToolResult, ToolUse
from codesdk.minicode import CreateMinicodeOptions, OpenSessionOptions, ProviderIdSchema, create_minicode
from codesdk.minicode.sdk import Minicode
from codesdk.minicode.types import Finish, ProviderId, TextDelta, ToolErrorEvent, ToolResultEvent

READ: list[dict[str, Any]] = [{"call": {"tool": "read", "input": {"file_path": "notes.txt"}}}]
SAY: list[dict[str, Any]] = [{"text": ["They say ", "milk."]}]

PROGRAM = """
import asyncio, json, sys
from codesdk.minicode import create_minicode

async def main():
    async with await create_minicode() as sdk:
        session = await sdk.open_session(**json.loads(sys.argv[1]))
        turn = session.send(sys.argv[2])
        kinds = [type(event).__name__ async for event in turn.events]
        response = await turn.response
        print(json.dumps({"id": session.id, "text": response.text, "kinds": kinds,
                          "provider": session.snapshot().provider, "messages": len(session.snapshot().messages)}))

asyncio.run(main())
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("milk\n")
    return folder


async def in_a_process(work: Path, env: dict[str, str], options: dict[str, Any], text: str) -> dict[str, Any]:
    """Run the program in a process that has nothing but these variables."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(options), text]
    ran = await asyncio.to_thread(
        subprocess.run, command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert CANARY not in ran.stdout + ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_user_can_call_create_minicode_and_open_session_with_no_manual_wiring(
    tmp_path: Path, work: Path, family: ProviderId
):
    async with endpoint(READ, SAY) as url:
        said = await in_a_process(work, variables(tmp_path, url, family), {}, "What do my notes say?")
    assert (said["text"], said["provider"], said["messages"]) == ("They say milk.", family, 4)
    assert said["kinds"] == [
        "StepFinish", "ToolCallEvent", "ToolResultEvent", "TextDelta", "TextDelta", "StepFinish", "Finish",
    ]  # fmt: skip


@pytest.mark.slow
async def test_session_persistence_works_across_process_restarts(tmp_path: Path, work: Path):
    async with endpoint(READ, SAY, [{"text": "Milk, as I said."}]) as url:
        env = variables(tmp_path, url, "anthropic")
        first = await in_a_process(work, env, {"id": "shopping"}, "What do my notes say?")
        again = await in_a_process(work, env, {"id": "shopping", "create_if_missing": False}, "Again?")
    assert (first["messages"], again["messages"]) == (4, 6)
    assert again["text"] == "Milk, as I said."
    stored = json.loads((tmp_path / "sessions" / "shopping.json").read_text())
    assert [message["role"] for message in stored["messages"]] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert CANARY not in (tmp_path / "sessions" / "shopping.json").read_text()


@pytest.mark.slow
async def test_model_switching_within_the_same_provider_works_without_process_restart(
    tmp_path: Path, work: Path
):
    async with alone(work, tmp_path, [SAY, [{"text": "Still milk."}]], "openai") as sdk:
        async with await sdk.open_session(id="one") as session:
            await session.send("What do my notes say?").response
            before = session.snapshot().model
        async with await sdk.open_session(id="one", runtime={"model": "gpt-small"}) as session:
            answer = await session.send("Sure?").response
            assert (session.snapshot().model, answer.text) == ("gpt-small", "Still milk.")
        assert before != "gpt-small"
        assert [each.model for each in await sdk.list_sessions()] == ["gpt-small"]


@pytest.mark.slow
async def test_selecting_another_provider_opens_a_new_session_with_the_requested_runtime(
    tmp_path: Path, work: Path
):
    async with alone(work, tmp_path, [SAY, SAY], "openai", "anthropic") as sdk:
        await (await sdk.open_session(id="one")).close()
        with pytest.raises(Conflict, match=r"keeps its provider.*open a new session"):
            await sdk.open_session(id="one", runtime={"provider": "anthropic"})
        other = await sdk.open_session(runtime={"provider": "anthropic", "model": "claude-x"})
        assert (other.snapshot().provider, other.snapshot().model) == ("anthropic", "claude-x")
        assert (await other.send("Hm?").response).text == "They say milk."
        assert len(await sdk.list_sessions()) == 2


async def test_default_tools_are_available_and_return_normalized_tool_output(tmp_path: Path, work: Path):
    calls: list[dict[str, Any]] = [
        {"call": {"tool": "read", "input": {"file_path": "notes.txt"}}},
        {"call": {"tool": "write", "input": {"file_path": "new/list.txt", "content": "bread\n"}}},
        {
            "call": {
                "tool": "edit",
                "input": {"file_path": "notes.txt", "old_text": "milk", "new_text": "oats"},
            }
        },
        {"call": {"tool": "bash", "input": {"command": "echo out; echo err >&2; exit 3"}}},
    ]
    async with alone(work, tmp_path, [*([call] for call in calls), SAY], "anthropic") as sdk:
        session = await sdk.open_session()
        turn = session.send("Do it all.")
        outputs = [
            event.output async for event in turn.events if isinstance(event, ToolResultEvent | ToolErrorEvent)
        ]
    assert [output.ok for output in outputs] == [True, True, True, False]
    assert "milk" in outputs[0].output_message
    assert (work / "new" / "list.txt").read_text() == "bread\n"
    assert (work / "notes.txt").read_text() == "oats\n"
    assert outputs[3].details == {"exit_code": 3}
    assert "out" in outputs[3].output_message
    assert "err" in outputs[3].output_message


PLUGIN = """
from codesdk.minicode.plugins import Contribution, Plugin, define_tool

def plugin(config):
    @define_tool(name=config["tool"])
    async def greet(name: str) -> str:
        "Greet somebody."
        return config["greeting"] + ", " + name

    return Plugin(id=config["id"], setup=lambda context: Contribution(tools=[greet], instructions=["Be kind."]))
"""


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin of an installed package and one in a file, both named in the global configuration."""
    site = tmp_path / "site"
    (site / "greeting_plugin-1.2.dist-info").mkdir(parents=True)
    (site / "greeting_plugin.py").write_text(PLUGIN)
    (site / "greeting_plugin-1.2.dist-info" / "METADATA").write_text("Name: greeting-plugin\nVersion: 1.2\n")
    (site / "greeting_plugin-1.2.dist-info" / "entry_points.txt").write_text(
        "[minicode.plugins]\ngreeting-plugin = greeting_plugin:plugin\n"
    )
    monkeypatch.syspath_prepend(site)
    (tmp_path / "own.py").write_text(PLUGIN)
    (tmp_path / "config").mkdir()
    plugins = {
        "greeting-plugin": {"id": "packaged", "tool": "greet", "greeting": "Hello"},
        (tmp_path / "own.py").as_uri(): {"id": "filed", "tool": "welcome", "greeting": "Welcome"},
    }
    (tmp_path / "config" / "config.json").write_text(json.dumps({"plugins": plugins}))


@pytest.mark.usefixtures("plugged")
async def test_plugins_load_from_package_and_file_url_references_in_global_config(tmp_path: Path, work: Path):
    async with alone(work, tmp_path, [SAY], "google") as sdk:
        loaded = [(plugin.reference, plugin.id) for plugin in sdk.get_loaded_plugins()]
    assert loaded == [("greeting-plugin", "packaged"), ((tmp_path / "own.py").as_uri(), "filed")]


@pytest.mark.usefixtures("plugged")
async def test_plugin_config_is_passed_per_reference_from_plugins_map(tmp_path: Path, work: Path):
    steps: list[dict[str, Any]] = [
        {"call": {"tool": "greet", "input": {"name": "Ada"}}},
        {"call": {"tool": "welcome", "input": {"name": "Bob"}}},
    ]
    async with alone(work, tmp_path, [steps, SAY], "google") as sdk:
        turn = (await sdk.open_session()).send("Greet them.")
        results = [event async for event in turn.events if isinstance(event, ToolResultEvent)]
    assert sorted(result.output.output_message for result in results) == ["Hello, Ada", "Welcome, Bob"]


@pytest.mark.parametrize("family", FAMILIES)
async def test_provider_selection_works_for_all_4_provider_families(
    tmp_path: Path, work: Path, family: ProviderId
):
    async with endpoint(READ, SAY) as url:
        env = variables(tmp_path, url, *FAMILIES) | {"MINICODE_MODEL": "some-model"}
        async with await create_minicode(cwd=work, env=env) as sdk:
            listed = [each.id for each in sdk.get_runtime_catalog().providers]
            assert listed == list(FAMILIES)
            session = await sdk.open_session(runtime={"provider": family, "model": "some-model"})
            turn = session.send("What do my notes say?")
            events = [event async for event in turn.events]
            response = await turn.response
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "They say milk."
    assert isinstance(events[-1], Finish)
    question, call, result, answer = response.response_messages
    assert question.content == [Text(text="What do my notes say?")]
    [use] = [block for block in call.content if isinstance(block, ToolUse)]
    [given] = [block for block in result.content if isinstance(block, ToolResult)]
    assert (use.name, use.tool_call_id) == ("read", given.tool_call_id)
    assert answer.content[-1] == Text(text="They say milk.")
    assert response.finish_reason == "stop"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {"provider": "openia"},
            "provider: invalid enum value 'openia', expected anthropic, google, openai or openai-compatible.",
        ),
        ({"tools": {"timeout_ms": "soon"}}, "tools.timeout_ms: expected `int`, got `str`"),
        ({"modle": "x"}, "modle is not a setting. Did you mean model?"),
    ],
)
async def test_invalid_config_fails_early_with_clear_validation_messages(
    tmp_path: Path, work: Path, config: dict[str, Any], says: str
):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidRequest) as raised:
        await create_minicode(cwd=work, env=variables(tmp_path, "http://127.0.0.1:9", "openai"))
    assert str(raised.value).startswith(str(tmp_path / "config" / "config.json"))
    assert says in str(raised.value)
    with pytest.raises(InvalidRequest, match="config_overrides"):
        await create_minicode(cwd=work, env={}, config_overrides=config)


async def test_a_missing_key_is_named_with_its_variable_and_its_field(tmp_path: Path, work: Path):
    async with await create_minicode(cwd=work, env={"MINICODE_CONFIG_DIR": str(tmp_path)}) as sdk:
        for family, names in {
            "anthropic": ("ANTHROPIC_API_KEY", "providers.anthropic.api_key"),
            "openai-compatible": ("OPENAI_COMPATIBLE_BASE_URL", "providers.openai-compatible.base_url"),
        }.items():
            with pytest.raises(CodeSDKError) as raised:
                await sdk.open_session(
                    runtime={"provider": ProviderIdSchema.parse(family), "model": "some-model"}
                )
            assert all(name in str(raised.value) for name in names)


def test_public_export_surface_remains_small_and_intentional():
    assert sorted(name for name in dir(surface) if not name.startswith("_")) == sorted(
        [
            "create_minicode",
            "ProviderIdSchema",
            "PluginsConfigSchema",
            "SdkConfigSchema",
            "ResolvedSdkConfigSchema",
            "ProviderId",
            "SdkConfig",
            "ResolvedSdkConfig",
            "CreateMinicodeOptions",
            "OpenSessionOptions",
            "RuntimeOverride",
            "RuntimeCatalog",
            "PluginReference",
            "PluginsConfig",
            "SessionSummary",
            "Minicode",
            "Session",
            "Turn",
            "TurnRequest",
            "TurnResponse",
            "TurnEvent",
            "ToolOutput",
        ]
    )


def test_the_options_are_the_arguments():
    for options, function in (
        (CreateMinicodeOptions, create_minicode),
        (OpenSessionOptions, Minicode.open_session),
    ):
        assert set(options.__annotations__) == set(get_type_hints(function)) - {"return"}
