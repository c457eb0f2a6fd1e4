"""What the page on minicode shows runs as printed, and its tables are those of the code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from codesdk.minicode import CreateMinicodeOptions, OpenSessionOptions, Turn
from codesdk.minicode.config import VARIABLES, SdkConfig, SdkConfigSchema
from codesdk.minicode.config.load import _leaves_of
from codesdk.minicode.plugins.hooks import MAX_WAITING
from codesdk.minicode.types import TurnEvent

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "minicode.md").read_text()
PROGRAMS = re.findall(r"```python\n((?!# greeter).*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
(PLUGIN,) = re.findall(r"```python\n(# greeter\.py.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "printed"), PROGRAMS, ids=["program", "agent", "config", "plugins", "tools", "sessions"]
)
def test_an_example_runs_as_printed(tmp_path: Path, program: str, printed: str):
    (tmp_path / "greeter.py").write_text(PLUGIN)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    noise = "The tool divide failed"  # its log has the details, as the output says
    assert ran.stdout == printed
    assert ran.stderr == "" or noise in ran.stderr


def test_the_configuration_that_it_shows_is_valid():
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert SdkConfigSchema.parse(json.loads(text)).agent.max_steps == 50


def test_the_table_of_settings_has_all_of_them_with_their_defaults():
    table = PAGE.partition("### Settings")[2].partition("### Variables")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.*?) \|", table, re.MULTILINE)
    listed = {name: default for names, default in rows for name in re.findall(r"`(.+?)`", names)}
    leaves = _leaves_of(SdkConfig())
    for name, value in leaves.items():
        if not name.startswith("catalog."):
            assert listed[name] == f"`{json.dumps(value)}`"
    known = {variable.field for variable in VARIABLES} | set(leaves)
    general = {re.sub(r"^(catalog|providers)\.[a-z-]+", r"\1.PROVIDER", name) for name in known}
    wanted = general - {"providers.PROVIDER.name"} | {"providers.openai-compatible.name"}
    assert set(listed) == wanted


def test_the_table_of_variables_is_that_of_the_code():
    table = PAGE.partition("### Variables")[2].partition("### What a project")[0]
    rows = re.findall(r"^\| (`.+?`) \| `(.+?)` \| (.*?) \|$", table, re.MULTILINE)
    assert [(tuple(re.findall(r"`(.+?)`", names)), field, what) for names, field, what in rows] == [
        (variable.names, variable.field, variable.what) for variable in VARIABLES
    ]


def test_the_numbers_are_those_of_the_code():
    assert MAX_WAITING == 1_000
    assert "If more than a thousand events wait for hooks" in PAGE


def test_the_tables_of_arguments_events_and_turns_are_those_of_the_code():
    tables = PAGE.partition("## In a program")[2].partition("### An agent")[0]
    cells = re.findall(r"^\| (`.+?`) \|", tables, re.MULTILINE)
    listed = {
        name.partition("(")[0].removeprefix("await ")
        for cell in cells
        for name in re.findall(r"`(.+?)`", cell)
    }
    functions = {"create_minicode", "open_session"}
    arguments = {*CreateMinicodeOptions.__annotations__, *OpenSessionOptions.__annotations__}
    events = {kind.__name__ for kind in get_args(TurnEvent)}
    turns = {name for name in vars(Turn) if not name.startswith("_")} - {"closed"}
    assert listed == functions | arguments | events | turns


def test_every_document_it_links_to_is_there():
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in target]
    assert linked
    assert [target for target in linked if not (ROOT / "docs" / target).exists()] == []
