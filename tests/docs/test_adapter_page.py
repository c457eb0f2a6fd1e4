"""docs/adapter-protocol.md: its adapter runs as printed, and it names every message, every item and every error."""

import re
import sys
from pathlib import Path

import pytest

from codesdk import CodeSDK
from codesdk.runtimes.external import messages
from codesdk.runtimes.external.items import Item
from codesdk.runtimes.external.messages import METHODS, WINDOW
from codesdk.runtimes.external.peer import MAX_OPEN_CALLS, WRITE_S
from codesdk.runtimes.external.process import INITIALIZE_S, MAX_NOISE
from codesdk.runtimes.external.task import CLOSE_S
from codesdk.runtimes.program.framing import MAX_LINE_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "adapter-protocol.md").read_text()


async def test_the_adapter_on_the_page_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"and run `codesdk run --external count=\"(.*?)\" ", PAGE)
    (example,) = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    program, workspace = tmp_path / "count.py", tmp_path / "workspace"
    program.write_text(example)
    workspace.mkdir()
    (workspace / "a").write_text("")
    async with CodeSDK.open(external={"count": command.replace("python3", sys.executable)}) as sdk:
        session = await sdk.create_session(
            runtime="external:count", workspace=workspace, permission_mode="auto"
        )
        result = await (await session.start("Count.")).result()
        assert re.fullmatch(r"The list has \d+ lines\.", result.text)
        asking = await sdk.create_session(
            runtime="external:count",
            workspace=workspace,
            permission_mode="ask",
            interaction_mode="non_interactive",
        )
        assert (await (await asking.start("Count.")).result()).text.startswith("I may not look: ")


def test_the_page_has_a_row_for_every_method():
    rows = re.findall(
        r"^\| `([^`]+)` \| (engine|adapter|both) \| `(\w+)`(?: → `(\w+)`)? \|", PAGE, re.MULTILINE
    )
    assert [tuple(row) for row in rows] == [
        (method.name, method.caller, method.params.__name__, method.result.__name__ if method.result else "")
        for method in METHODS
    ]


def test_the_page_names_every_item():
    told = re.findall(r"^\| (`[^|]*`) \| ", PAGE.partition("## A task")[2], re.MULTILINE)
    named = {name for cell in told for name in re.findall(r"`([^`]+)`", cell)}
    assert {kind.__struct_config__.tag for kind in Item.__args__} <= named


def test_the_page_names_every_error():
    codes = (
        messages.KNOWN_ERROR,
        messages.HISTORY_LOST,
        messages.METHOD_NOT_FOUND,
        messages.INVALID_PARAMS,
        messages.INTERNAL_ERROR,
        messages.CANCELLED,
    )
    assert all(f"| {code}" in PAGE for code in codes)


def test_the_page_has_the_bounds_of_the_code():
    assert f"{MAX_LINE_BYTES >> 20} MiB" in PAGE
    assert f"(`items`, {WINDOW})" in PAGE
    assert f"more than {MAX_OPEN_CALLS} open" in PAGE
    assert f"more than {MAX_NOISE:,} lines of noise" in PAGE
    assert f"stdin unread for {WRITE_S:g} s" in PAGE
    assert f"`initialize` within {INITIALIZE_S:g} s" in PAGE
    assert f"`close` within {CLOSE_S:g} s" in PAGE
