"""What the ownership rows look at: the tools of a request in every format, and traps that name themselves."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.entry import MARK
from codesdk.runtimes import entries
from codesdk.testing.ownership_checks import HIDDEN, declared
from codesdk.testing.program_checks import native_calls, other_calls
from codesdk.testing.traps import ORDER, lay_traps, traps


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (
            {"tools": [{"name": "Bash"}, {"type": "web_search_20250305", "name": "web_search"}]},
            ["Bash", "web_search"],
        ),
        ({"tools": [{"type": "mcp_toolset"}]}, ["mcp_toolset"]),
        (
            {
                "tools": [
                    {"type": "function", "name": "exec"},
                    {"type": "web_search"},
                    {
                        "type": "namespace",
                        "name": "mcp__codesdk",
                        "tools": [{"type": "function", "name": "read"}],
                    },
                ],
                "input": [
                    {"type": "additional_tools", "tools": [{"type": "custom", "name": "apply_patch"}]},
                    "text",
                ],
            },
            ["exec", "web_search", "mcp__codesdk.read", "apply_patch"],
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "bash"}}], "functions": [{"name": "old"}]},
            ["bash", "old"],
        ),
        (
            {
                "tools": [
                    {"functionDeclarations": [{"name": "shell"}], "codeExecution": {}},
                    {"googleSearch": {}},
                ]
            },
            ["shell", "codeExecution", "googleSearch"],
        ),
        ({"input": "text"}, []),
    ],
    ids=["anthropic", "anthropic-toolset", "responses", "chat", "gemini", "none"],
)
def test_every_tool_that_a_request_offers_is_found(body: dict[str, Any], names: list[str]):
    assert list(declared(body)) == names


def test_a_dozen_hidden_names_are_called_besides_those_that_agents_say_they_have():
    assert len(HIDDEN) >= 12
    assert not HIDDEN.keys() & {**native_calls(), **other_calls()}.keys()


def test_every_program_says_which_tools_it_has_and_which_of_them_would_leave_a_mark():
    for entry in entries().values():
        if entry.program is not None:
            assert all(MARK in str(given) for given in entry.own_tools.values())
            assert len(entry.own_tools) >= 2
            assert len(entry.other_tools) >= 10
            assert not set(entry.other_tools) & entry.own_tools.keys()


def test_every_trap_can_be_read_by_the_agent_that_it_is_for(tmp_path: Path):
    for name in lay_traps(tmp_path, tmp_path / "marks"):
        text = (tmp_path / name).read_text()
        if name.endswith((".json", ".jsonc")):
            json.loads(text)
        elif name.endswith(".toml"):
            tomllib.loads(text)
        elif name.endswith(".md"):
            assert ORDER in text


def test_a_trap_that_springs_leaves_a_mark_of_its_own(tmp_path: Path):
    commands: dict[str, str] = {}

    def touch(name: str) -> str:
        assert name not in commands, "each has a name of its own"
        commands[name] = f"touch {tmp_path / 'marks' / name}"
        return commands[name]

    files = traps(touch)
    (tmp_path / "marks").mkdir()
    for command in commands.values():
        subprocess.run(["/bin/sh", "-c", command], check=True)
    assert {path.name for path in (tmp_path / "marks").iterdir()} == set(commands)
    whole = "\n".join(files.values())
    assert [name for name in commands if f"marks/{name}" not in whole] == []
    agents = ("claude", "codex", "gemini", "qwen", "opencode", "kilo", "vibe")
    assert [agent for agent in agents if not any(name.startswith(agent) for name in commands)] == []
