"""What docs/mcp.md shows runs as printed, and what it says is left out is what the tests leave out."""

import re
import subprocess
import sys
from pathlib import Path

from tests.tools.mcp.conformance import LEFT_OUT

PAGE = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()


def test_the_example_with_an_attached_server_runs_as_printed(tmp_path: Path):
    (example,) = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "     1\tWater the plants.\nYou have to water the plants.\n"


def test_the_page_lists_what_is_left_out_with_the_reasons():
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|$", PAGE, re.MULTILINE)
    listed = {name: reason for names, reason in rows for name in re.findall(r"`([a-z0-9-]+)`", names)}
    assert {name: reason for name, reason in listed.items() if name in LEFT_OUT} == LEFT_OUT
