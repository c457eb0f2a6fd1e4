"""The program on the page about output with a schema runs as printed, and its bounds are those of the code."""

import re
import subprocess
import sys
from pathlib import Path

from codesdk.engine.tasks import answers
from codesdk.runtimes import create_runtime
from codesdk.runtimes.registry import entries

PAGE = (Path(__file__).parents[2] / "docs" / "output-schema.md").read_text()


def test_the_program_prints_what_the_page_says(tmp_path: Path):
    (program,), (printed,) = (
        re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("python", "text")
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", printed)


def test_the_bounds_are_those_of_the_code():
    assert answers.MAX_SCHEMA_BYTES == 64 * 1024
    assert "at most 64 KiB" in PAGE
    assert (answers.MAX_REMINDERS, answers.MAX_REFUSED) == (2, 10)
    assert "at most two more times" in PAGE
    assert "ten results were refused" in PAGE


def test_only_codex_goes_natively():
    native = [name for name in entries() if create_runtime(name).capabilities().output_schema == "native"]
    assert native == ["codex-sdk"]
    assert "Today codex goes natively" in PAGE
