"""What the page on the audit shows is what happens, and its table of actions is the whole list."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.shell import Shell

from codesdk.store.audit import entries as audit_entries, trail as audit

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_and_the_check_print_what_the_page_says(tmp_path: Path):
    (program,), (printed,), (shown,) = blocks("python"), blocks("text"), blocks("console")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", printed)
    command, output = shown.splitlines()
    ran = Shell(tmp_path).codesdk(*command.removeprefix("$ codesdk ").split())
    assert (ran.code, re.sub("sha256:[0-9a-f]{64}", "sha256:…", ran.out)) == (0, output + "\n")


def test_every_action_that_is_recorded_is_on_the_page():
    source = Path(audit_entries.__file__).read_text()
    actions = set(
        re.findall(r'"((?:session|task|approval|tool|grant|runtime|model|engine|log)\.\w+)"', source)
    )
    assert len(actions) > 15
    assert [name for name in sorted(actions) if f"`{name}`" not in PAGE] == []


def test_the_bounds_are_those_of_the_code():
    assert f"a queue of {audit.MAX_QUEUED:,}" in PAGE
