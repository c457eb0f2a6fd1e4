"""Presets: policies by name, the same in every mode, and never mistaken for a file."""

from pathlib import Path
from typing import Any, get_args

import pytest

from codesdk import CodeSDK, InvalidRequest, SessionSettings
from codesdk.contract.events import ToolCallApprovedEvent, ToolCallDeniedEvent
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import PermissionMode, Subjects, ToolClass
from codesdk.policy import PRESETS, all_opinions, choose_policy, decide, load_policy, preset_policy
from codesdk.tools import builtin_registry

READING = ["workspace.read", "workspace.list", "workspace.glob", "workspace.search", "user.ask"]
EDITING = ["workspace.write", "workspace.edit", "patch.apply"]
CALLS: list[tuple[str, ToolClass, list[str]]] = [
    *((name, "read_only", ["src/main.py"]) for name in READING),
    *((name, "write", ["src/main.py"]) for name in EDITING),
    ("workspace.write", "write", [".git/hooks/pre-commit"]),
    ("patch.apply", "write", ["README.md", "vendored/.git/config"]),
    ("workspace.exec", "dangerous", []),
    ("http.fetch", "network", []),
    ("Write", "write", ["README.md"]),  # claude's own, which cannot be confined
    ("mcp.files.read", "read_only", []),
]
EXPECTED = {
    "edits": ["allow"] * 8 + ["ask"] * 6,
    "read-only": ["allow"] * 5 + ["deny"] * 9,
}


@pytest.mark.parametrize("mode", get_args(PermissionMode))
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_decides_about_every_call_whatever_the_mode(name: str, mode: PermissionMode):
    policy = preset_policy(name)
    assert [_decided(policy, mode, *call) for call in CALLS] == EXPECTED[name]


def _decided(policy: Any, mode: PermissionMode, name: str, kind: ToolClass, paths: list[str]) -> str:
    question = PolicyQuestion(
        session_id="",
        name=name,
        tool_class=kind,
        input={},
        permission_mode=mode,
        subjects=Subjects(paths=paths),
    )
    return decide(all_opinions(question, policy.evaluate(question))).result


def test_they_know_every_built_in_tool():
    """A new tool on files must be put into the presets, or it is asked about without anyone having thought of it."""
    assert sorted(spec.name for spec in builtin_registry().specs()) == sorted([*READING, *EDITING])


def test_a_name_means_the_preset_unless_a_file_of_that_name_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert choose_policy("edits") is preset_policy("edits")
    (tmp_path / "edits").mkdir()  # a directory cannot be meant
    assert choose_policy("edits") is preset_policy("edits")
    (tmp_path / "edits").rmdir()
    (tmp_path / "edits").write_text('[[rules]]\nid = "mine"\nresult = "deny"\n')
    with pytest.raises(InvalidRequest) as refused:
        choose_policy("edits")
    assert refused.value.message == (
        "edits is the name of a preset, and there is a file of that name here."
        " Write ./edits for the file, or preset:edits for the preset."
    )
    assert [rule.id for rule in choose_policy("./edits").rules] == ["mine"]
    assert choose_policy("preset:edits") is preset_policy("edits")
    assert choose_policy("preset:edits").rules == preset_policy("edits").rules
    # In a program a text never means a file, so there is nothing to confuse.
    assert [rule.id for rule in load_policy("edits").rules] == ["mine"]


async def test_the_library_takes_a_name_and_nothing_that_is_no_policy(tmp_path: Path):
    steps = [
        {"call": {"tool": "workspace.write", "input": {"path": "new.txt", "content": "x"}}},
        {"call": {"tool": "workspace.write", "input": {"path": ".git/config", "content": "x"}}},
    ]
    config = {"script": {"turns": [{"steps": steps}, {"steps": [{"text": "Done."}]}]}}
    async with CodeSDK.open(policy="edits") as sdk:
        session = await sdk.create_session(
            runtime="scripted",
            workspace=tmp_path,
            interaction_mode="non_interactive",
            settings=SessionSettings(runtime_config=config),
        )
        task = await session.start("Write")
        decided = [
            (event.type, event.payload.policy_snapshot.sources[1].rule)
            async for event in task.events()
            if isinstance(event, ToolCallApprovedEvent | ToolCallDeniedEvent)
        ]
    assert decided == [
        ("tool.call.approved", "edits.edits-run"),
        ("tool.call.denied", "edits.machinery-asks"),
    ]
    assert (tmp_path / "new.txt").read_text() == "x"
    wrong: Any
    for wrong, words in (
        (
            "edit",
            "There is no policy 'edit'. Presets: edits, read-only. A policy in a file is read by load_policy.",
        ),
        (
            tmp_path / "policy.toml",
            "Invalid argument: policy: expected the name of a preset or an object with `evaluate`, got `PosixPath`.",
        ),
        (
            {"rules": []},
            "Invalid argument: policy: expected the name of a preset or an object with `evaluate`, got `dict`.",
        ),
    ):
        with pytest.raises(InvalidRequest) as refused:
            async with CodeSDK.open(policy=wrong):
                pass
        assert refused.value.message.startswith(words)
