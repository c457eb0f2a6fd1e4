"""The bundle of a session of the real codex: every item that a bundle must have, with something in it."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bundle.unpacked import Unpacked, bundled
from tests.runtimes.alone import alone, left_behind, tried_outside

from codesdk import CodeSDK
from codesdk.script import parse_object
from codesdk.tools.options import ExecOptions

TURNS: list[dict[str, Any]] = [
    {
        "steps": [
            {
                "call": {
                    "tool": "workspace.exec",
                    "input": {"argv": ["sh", "-c", "cat notes.txt; echo oops >&2; exit 3"]},
                }
            }
        ],
        "usage": {"input": 100, "output": 20},
    },
    {"steps": [{"text": "You have to remember the milk."}], "usage": {"input": 120, "output": 9}},
]


@pytest.fixture(autouse=True)
def loopback_only(tmp_path: Path) -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0
        assert left_behind(tmp_path) == []


async def real_bundle(tmp_path: Path) -> tuple[str, Unpacked]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    workspace.chmod(0o777)
    (workspace / "notes.txt").write_text("remember the milk\n")
    run = ExecOptions(allow=[["sh"]], sandbox="host")
    async with (
        asyncio.timeout(120),
        CodeSDK.open(tmp_path / "data", run=run, providers={}, allow_yolo=True) as sdk,
    ):
        session = await sdk.create_session(
            runtime="codex",
            workspace=workspace,
            plays=parse_object({"turns": TURNS}, "a test"),
            permission_mode="yolo",
        )
        result = await (await session.start("What do my notes say?")).result()
        assert result.text == "You have to remember the milk."
        _, bundle = await bundled(sdk, session.id)
    return session.id, bundle


async def test_every_item_is_there_and_says_something(tmp_path: Path):
    session_id, bundle = await real_bundle(tmp_path)
    check_health_and_capabilities(bundle)
    check_versions(bundle)
    check_config(bundle)
    check_transports(bundle)
    check_events(bundle, session_id)
    check_tools(bundle)
    check_runtime(bundle)
    audited = [json.loads(line) for line in bundle.files["audit.jsonl"].split(b"\n") if line]
    assert {record["what"]["session_id"] for record in audited} == {session_id}
    assert bundle.json("verify.json") == {"ok": True, "findings": [], "interrupted": False}
    assert [message["role"] for message in bundle.json("transcript.json")] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert bundle.json("manifest.json")["left_out"] == []


def check_health_and_capabilities(bundle: Unpacked) -> None:
    health = bundle.json("health.json")
    assert health["data_dir"]["readable"] is True
    assert health["data_dir"]["database_bytes"] > 0
    assert [sandbox["backend"] for sandbox in health["sandboxes"]] == ["bubblewrap", "host"]
    assert bundle.json("capabilities.json")["codex-sdk"]["supports_streaming"] is True


def check_versions(bundle: Unpacked) -> None:
    versions = bundle.json("versions.json")
    codex, claude = versions["runtimes"]["codex-sdk"], versions["runtimes"]["claude-agent-sdk"]
    assert codex["adapter"] == "codesdk.runtimes.codex.adapter:CodexRuntime"
    assert codex["adapter_version"] == versions["codesdk"]
    assert codex["program"]["tested_version"] == codex["program"]["package_version"]
    assert claude["program"]["tested_version"]
    assert versions["packages"]["msgspec"]


def check_config(bundle: Unpacked) -> None:
    config = bundle.json("config.json")
    assert config["session"]["runtime"] == "codex-sdk"
    assert config["session"]["permission_mode"] == config["policy"]["permission_mode"] == "yolo"
    assert config["policy"]["opinions"]
    assert config["implicit_sources"]
    files = {Path(entry["path"]).name: entry for entry in config["runtime_files"]}
    assert len(files["config.toml"]["sha256"]) == 64
    assert all("content" not in entry for entry in config["runtime_files"])


def check_transports(bundle: Unpacked) -> None:
    matrix = bundle.json("mcp.json")["runtimes"]
    assert (matrix["codex-sdk"]["supported"], matrix["codex-sdk"]["chosen"]) == (["http"], "http")
    assert (matrix["scripted"]["supported"], matrix["scripted"]["chosen"]) == ([], None)


def check_events(bundle: Unpacked, session_id: str) -> None:
    events = bundle.events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["trace"]["session_id"] for event in events} == {session_id}
    assert events[-1]["type"] == "task.completed"


def check_tools(bundle: Unpacked) -> None:
    (made,) = bundle.calls
    assert (made["name"], made["exit_code"]) == ("workspace.exec", 3)
    assert (made["stdout"], made["stderr"]) == ("remember the milk\n", "oops\n")
    assert made["started"][0]["execution_env"] == "codesdk_host"
    assert made["approved"][0]["policy_snapshot"]["decision"] == "allow"


def check_runtime(bundle: Unpacked) -> None:
    runtime = bundle.json("runtime.json")
    assert runtime["runtimes"] == ["codex-sdk"]
    assert runtime["models"]
    assert runtime["runtime_session_ids"]
    assert [request["status"] for request in runtime["requests"]] == ["completed", "completed"]
    assert all(request["request_id"].startswith("req_") for request in runtime["requests"])
    assert [request["usage"]["input"] for request in runtime["requests"]] == [100, 120]
