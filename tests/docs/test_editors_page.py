"""docs/editors.md names what `codesdk acp` has: its options, the methods, the commands; its examples are JSON."""

import json
import re
from pathlib import Path

from acp.meta import AGENT_METHODS
from tests.acp_agent.editor import Memory, local

from codesdk import CodeSDK
from codesdk.acp_agent.agent import EditorAgent
from codesdk.acp_agent.commands import COMMANDS
from codesdk.acp_agent.place import Offer
from codesdk.cli.commands.acp import acp

PAGE = (Path(__file__).parents[2] / "docs" / "editors.md").read_text()


async def test_every_method_of_an_agent_is_in_the_table_as_answered_or_not():
    async with CodeSDK.open() as sdk:
        peer = EditorAgent(Memory(), local(sdk), Offer())._peer
        answered = {*peer._requests, *peer._notifications}
    for method in answered:
        assert f"`{method}`" in PAGE, method
    others = set(AGENT_METHODS.values()) - answered
    assert others == {
        method for method in others if re.match(r"authenticate|logout|providers/|nes/|document/|mcp/", method)
    }


def test_every_command_is_listed_and_no_other():
    assert re.findall(r"`/(\w+)", PAGE.partition("**Commands**")[2].partition("\n")[0]) == list(COMMANDS)


def test_the_options_are_those_of_the_command():
    own = {option.opts[0] for option in acp.params} | {"--data-dir", "--url"}
    assert {*re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE)} <= own
    for option in ("--runtime", "--model", "--permission-mode", "--script"):
        assert f"| `{option}" in PAGE


def test_the_examples_for_editors_start_the_command():
    for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL):
        agent = json.loads(block)["agent_servers"]["CodeSDK"]
        assert agent["command"].endswith("codesdk")
        assert agent["args"][0] == "acp"
