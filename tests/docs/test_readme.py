"""What the README shows runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_library_example_runs_as_printed_and_has_about_fifteen_lines(tmp_path: Path) -> None:
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    ran = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    lines = ran.stdout.splitlines()
    assert lines[0] == "2 task.started"
    assert lines[-2].endswith("task.completed")
    assert lines[-1] == "Hello from CodeSDK."
    assert (tmp_path / ".codesdk" / "codesdk.db").is_file()


def test_every_document_it_links_to_is_there() -> None:
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target]
    assert linked
    assert [target for target in linked if not (ROOT / target).exists()] == []
