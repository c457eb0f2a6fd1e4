"""What the page on retention shows is what happens, and its table names every limit."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.shell import Shell

from codesdk.cli.commands.gc import gc
from codesdk.local.retention import Retention
from codesdk.store.sqlite.vacuum import PAGES_AT_ONCE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "retention.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_and_the_command_print_what_the_page_says(tmp_path: Path):
    (program,), (printed,), (shown,) = blocks("python"), blocks("text"), blocks("console")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", printed)
    command, output = shown.splitlines()
    ran = Shell(tmp_path).codesdk(*command.removeprefix("$ codesdk ").split())
    sizes = re.sub(r'("bytes_\w+"):[1-9]\d+', r"\1:…", ran.out)
    assert (ran.code, sizes) == (0, output + "\n")


def test_the_table_names_every_limit():
    options = [name for option in gc.params for name in option.opts if "older" in name or "max" in name]
    assert len(options) == len(Retention.__struct_fields__) == 6
    assert [name for name in [*Retention.__struct_fields__, *options] if name not in PAGE] == []
    assert f"{PAGES_AT_ONCE} pages at a time" in PAGE


def test_every_document_it_links_to_is_there():
    for page in ("retention.md", "audit.md"):
        linked = re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs" / page).read_text())
        assert linked
        assert [target for target in linked if not (ROOT / "docs" / target).exists()] == []
