"""The real gemini as a runtime of its own: its modes, its policy in the log, prompts that are none of its commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtimes.alone import alone, tried_outside

from codesdk import CodeSDK
from codesdk.contract.capabilities import Isolation
from codesdk.contract.codec import decode
from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import RuntimeEnv, ToolAnnouncement
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes.acp.normalize import normalize
from codesdk.runtimes.acp.state import State
from codesdk.runtimes.gemini import ENTRY, MODES, ROW
from codesdk.runtimes.gemini.login import Checks, login_row
from codesdk.runtimes.program.finding import Program
from codesdk.script import parse_object

READ = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


@pytest.mark.parametrize("mode", MODES)
async def test_what_geminis_policy_says_is_in_the_log_in_every_mode(tmp_path: Path, mode: Any):
    (tmp_path / "notes.txt").write_text("remember the milk\n")
    script = parse_object(
        {"turns": [{"steps": [{"text": "I look."}, READ]}, {"steps": [{"text": "Milk."}]}]}, "a test"
    )
    async with CodeSDK.open(tmp_path / "data", providers={}, allow_yolo=True) as sdk:
        session = await sdk.create_session(
            runtime="gemini", workspace=tmp_path, permission_mode=mode, plays=script
        )
        task = await session.start("/memory show what my notes say")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.approve(event.payload.tool_call_id or "")
        assert (await task.result()).text == "Milk."
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        asked: Any = next(e.payload for e in events if getattr(e.payload, "capture", None) == "exact")
        document = json.loads(await sdk.read_artifact(asked.input_ref.artifact_id))
        blobs = {name: await sdk.archive.blobs.get(name) for name in hashes_of(document)}
        told = json.dumps(join(document, blobs))
    opinions = [e.payload for e in events if e.type == "tool.call.policy_evaluated"]
    own: list[Any] = [p for p in opinions if p.source == "runtime"]
    assert [(p.result, p.rule) for p in own] == [("allow", "runtime:policy")]
    assert "/memory show what my notes say" in told  # the model is asked, and no command is run
    assert "[MODE_UPDATE]" not in str([e.payload for e in events if e.type == "model.output.completed"])


def test_it_has_a_mode_for_each_of_ours():
    assert (ROW.modes, ROW.opines) == ({"ask": "default", "auto": "autoEdit", "yolo": "yolo"}, True)
    assert (ENTRY.alias, ENTRY.logins) == ("gemini", ("beside",))


def test_with_a_login_it_has_no_key_and_no_address_of_ours_and_cannot_ask_for_a_login():
    row = login_row(ROW)
    told = msgspec.json.encode(row).decode()
    assert "${key}" not in told
    assert "${model_url}" not in told
    assert row.launch.environment.items() >= {"OAUTH_CALLBACK_PORT": "0", "MIR_SOCKET": "none"}.items()
    settings = row.launch.files["home/.gemini/settings.json"]
    assert settings["security"]["auth"] == {"selectedType": "oauth-personal"}
    assert settings["tools"] == {"core": []}
    assert (row.launch.arguments, row.modes) == (ROW.launch.arguments, ROW.modes)


async def test_a_version_that_nobody_tested_is_not_started_with_a_login(tmp_path: Path):
    env = RuntimeEnv(
        cwd=str(tmp_path),
        env={},
        credential_namespace="local",
        isolation=Isolation(level="namespaced", mode="subprocess"),
        state_dir=str(tmp_path),
        login="beside",
    )
    for state in ("certified", "untested"):
        with pytest.raises(TaskFailure, match=r"gemini 9\.9\.9 is not used with a login") as failure:
            await Checks().renewed(Program("/bin/false", "9.9.9", state), env)
        assert failure.value.code == "RUNTIME_UNAVAILABLE"


@pytest.mark.parametrize(("asks", "opinion"), [(True, "ask"), (False, "allow")])
def test_what_its_policy_says_of_a_call_is_an_opinion_ask_if_it_asks(asks: bool, opinion: str):
    state = State(
        runtime="gemini-cli-core",
        session_id="s",
        task_id="t",
        tools={"workspace_read": "workspace.read"},
        reading=ROW.reading,
        after_name=True,
        opines=ROW.opines,
    )
    call = {"toolCallId": "mcp_codesdk_workspace_read__r1", "status": "in_progress"}
    options = [{"optionId": "proceed_once", "kind": "allow_once"}]
    frame: dict[str, Any] = (
        {
            "id": 1,
            "method": "session/request_permission",
            "params": {"sessionId": "s", "toolCall": call, "options": options},
        }
        if asks
        else {
            "method": "session/update",
            "params": {"sessionId": "s", "update": {"sessionUpdate": "tool_call", **call}},
        }
    )
    announced = [item for item in normalize(state, frame) if isinstance(item, ToolAnnouncement)]
    assert [(each.name, each.opinion) for each in announced] == [("workspace.read", opinion)]
