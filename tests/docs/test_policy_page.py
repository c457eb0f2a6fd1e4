"""What the page on permissions shows is what happens."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from codesdk.policy import PRESETS
from codesdk.policy.rules import Rule

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (rules,) = blocks("toml")
    (tmp_path / "policy.toml").write_text(rules)
    return tmp_path


@pytest.mark.parametrize(("number", "printed"), [(0, None), (1, 0), (2, 1), (3, 2)])
def test_a_program_prints_what_the_page_says(home: Path, number: int, printed: int | None):
    programs, outputs = blocks("python"), blocks("text")
    assert (len(programs), len(outputs)) == (4, 3)
    done = subprocess.run(
        [sys.executable, "-c", programs[number]],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", "" if printed is None else outputs[printed])


def test_the_commands_print_what_the_page_says(home: Path):
    shell = Shell(home)
    shown = blocks("console")
    assert len(shown) == 2
    for block in shown:
        command, _, output = block.partition("\n")
        ran = shell.codesdk(*shlex.split(command.removeprefix("$ codesdk ")))
        assert (ran.code, ran.err, ran.out) == (0, "", output)


def test_every_field_of_a_rule_is_on_the_page():
    fields = [*Rule.__struct_encode_fields__, "match", "not_match"]
    assert [name for name in fields if f"`{name}`" not in PAGE] == []


def test_every_preset_is_on_the_page_as_it_describes_itself():
    assert [name for name, found in PRESETS.items() if f"| `{name}` | {found.summary} |" not in PAGE] == []


def test_every_document_it_links_to_is_there():
    linked = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert linked
    assert [name for name in linked if not (Path(__file__).parents[2] / "docs" / name).exists()] == []
