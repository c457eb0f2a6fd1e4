"""What the page on the context shows is what happens."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from tests.cli.shell import Shell

from codesdk.contract.events import ContextStrategy
from codesdk.contract.settings import AutoCompact, CompactStrategy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "context.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_and_the_command_print_what_the_page_says(tmp_path: Path):
    (program,), (printed,), (shown,) = blocks("python"), blocks("text"), blocks("console")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", printed)
    command, output = shown.splitlines()
    shell = Shell(tmp_path)
    (listed,) = shell.codesdk("sessions", "--json").out.splitlines()
    session = json.loads(listed)["session_id"]
    ran = shell.codesdk(*command.removeprefix("$ codesdk ").replace("SESSION", session).split())
    assert (ran.code, ran.out, ran.err) == (0, output + "\n", "")


def test_every_strategy_is_on_the_page_and_no_other():
    tables = {name for row in re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) for name in [row]}
    assert tables == {*get_args(ContextStrategy), *get_args(CompactStrategy)}
    assert set(get_args(AutoCompact)) - set(get_args(CompactStrategy)) == {"off"}


def test_every_document_it_links_to_is_there():
    linked = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert [target for target in linked if not (ROOT / "docs" / target).exists()] == []
