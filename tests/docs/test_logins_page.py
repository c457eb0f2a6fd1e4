"""What the page on logins shows is what happens, and the tests that it and its neighbours name are there."""

import ast
import re
from pathlib import Path

from codesdk.runtimes import entries

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "logins.md").read_text()


async def test_the_example_runs():
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = compile(program, "docs/logins.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, {})


def test_each_runtime_with_logins_has_its_column_and_its_providers_words():
    ways = {entry.alias: entry.logins for entry in entries().values() if entry.logins}
    assert ways == {"codex": ("through",), "claude": ("beside",), "gemini": ("beside",)}
    assert "| for | codex | claude, gemini |" in PAGE
    assert "| | codex | claude | gemini |" in PAGE
    quoted = PAGE.partition("## What the providers say")[2]
    assert all(f"({alias})\n\n>" in quoted for alias in ways)


def test_what_each_path_was_judged_by_is_there():
    table = (
        (ROOT / "docs" / "runtimes.md").read_text().partition("### Keys and logins")[2].partition("\n## ")[0]
    )
    named = re.findall(r"`(tests/[^`]+)`", table)
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).exists()] == []
