"""What the examples of the documents import is public: `codesdk` itself, or the door of a package."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPEN = ("codesdk.contract.", "codesdk.testing.")
"""Packages without a door: others may import each of their modules."""
OF_AN_AUTHOR = {"codesdk.minicode.types"}
"""What authors of plugins for minicode write with, beside the doors of its packages."""


def imported(page: Path) -> set[str]:
    """Return the modules that the examples of a page import from."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return {
        name for block in blocks for name in re.findall(r"^from (codesdk[\w.]*) import", block, re.MULTILINE)
    }


@pytest.mark.parametrize("page", [page for page in PAGES if imported(page)], ids=lambda page: page.name)
def test_an_example_never_reaches_behind_a_door(page: Path) -> None:
    inner = {name for name in imported(page) if name.count(".") > 1 and not name.startswith(OPEN)}
    without_a_door = {
        name for name in inner if not (SOURCE.joinpath(*name.split(".")) / "__init__.py").is_file()
    }
    assert without_a_door - OF_AN_AUTHOR == set()
