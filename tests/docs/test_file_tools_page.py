"""What the page on tools shows runs as printed, and its list is the list of tools."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from codesdk.tools import builtin_registry
from codesdk.tools.patch import parsing as patch_text
from codesdk.tools.workspace import file_tools as workspace, file_work as files, search_tools as finding

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tools.md").read_text()
APP_TOOL, JSON_TOOL = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("example", "printed"),
    [
        (
            APP_TOOL,
            ["shop.order_status {'state': 'shipped', 'parcels': 2}", "Order 7 is on its way."],
        ),
        (
            JSON_TOOL,
            [
                "The input of units.to_fahrenheit is not valid. celsius: expected number, got string."
                " It takes: celsius (number, required)."
            ],
        ),
    ],
)
def test_an_example_runs_as_printed(tmp_path: Path, example: str, printed: list[str]):
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.splitlines() == printed


def test_the_table_names_the_built_in_tools_and_their_classes():
    listed = re.findall(r"^\| `([a-z.]+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted((spec.name, spec.tool_class) for spec in builtin_registry().specs())


def test_the_bounds_are_those_of_the_code():
    bounds = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.partition("### Bounds")[2], re.MULTILINE))
    assert bounds["a file that is read, searched or written"] == f"{files.MAX_FILE_BYTES:,} bytes"
    assert f"{workspace.MAX_SHOWN_CHARS:,} characters" in bounds["what one `workspace.read` shows"]
    assert f"{workspace.MAX_LINE_CHARS:,} a line" in bounds["what one `workspace.read` shows"]
    assert bounds["the time of one walk through a tree"] == f"{finding.WALK_S:g} s"
    assert bounds["the time of a regular expression, over all files together"] == f"{finding.PATTERN_S:g} s"
    assert bounds["files in a patch"] == str(patch_text.MAX_FILES)
    for name in finding.SKIPPED:
        assert f"`{name}`" in PAGE


def test_every_document_it_links_to_is_there():
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in target]
    assert linked
    assert [target for target in linked if not (ROOT / "docs" / target).exists()] == []
