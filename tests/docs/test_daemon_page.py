"""What the page on the daemon's API shows works as printed, and its tables are what there is."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.daemon.rig import daemon

from codesdk.cli.codesdkd import codesdkd
from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.problems import STATUS

PAGE = (Path(__file__).parents[2] / "docs" / "daemon-api.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_table_of_operations_is_that_of_the_daemon():
    assert rows("Operations") == [
        [
            f"{operation.method} {operation.path}",
            operation.scope or "none",
            operation.summary.replace("`", ""),
        ]
        for operation in OPERATIONS
    ]


def test_the_table_of_codes_is_that_of_the_daemon():
    assert {code: int(status) for code, status in rows("Errors")} == STATUS


def test_the_options_that_are_named_are_there():
    known = {option for parameter in codesdkd.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known


def test_the_commands_work_as_printed(tmp_path: Path):
    (script,) = re.findall(r"<!-- run -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "work").mkdir()
    # curl notices that nobody reads any more when the next heartbeat comes.
    with daemon(tmp_path / "data", "--heartbeat", "0.1") as running:
        python = shlex.quote(sys.executable)
        given = f'URL={running.url}; WORK={shlex.quote(str(tmp_path / "work"))}; python3() {{ {python} "$@"; }}\nset -eu\n'
        ran = subprocess.run(
            ["bash", "-c", given + script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1] == "Hello there."
