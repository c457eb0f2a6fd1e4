"""The programs on the pages about questions and about going on run as printed, and their bounds are those of the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from codesdk import SessionSettings
from codesdk.engine.calls import server_questions
from codesdk.engine.sessions.going_on import MAX_BACKOFF_S
from codesdk.tools.mcp_client import elicitation

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["questions.md", "going-on.md"])
def test_the_program_prints_what_the_page_says(tmp_path: Path, name: str):
    page = (DOCS / name).read_text()
    (program,), (printed,) = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text")
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", printed)


def test_the_bounds_are_those_of_the_code():
    questions, going_on = (DOCS / "questions.md").read_text(), (DOCS / "going-on.md").read_text()
    assert f"up to {elicitation.MAX_FIELDS} fields" in questions
    assert f"may ask {server_questions.MAX_QUESTIONS} questions" in questions
    settings = SessionSettings()
    assert f"`max_resumes` ({settings.max_resumes}) times" in going_on
    assert f"`resume_backoff_s` ({settings.resume_backoff_s:g} s)" in going_on
    assert MAX_BACKOFF_S == 300
