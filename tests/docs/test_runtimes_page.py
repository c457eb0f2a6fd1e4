"""The table of runtimes in docs/runtimes.md is the one that their entries make."""

from pathlib import Path

from codesdk.runtimes import runtime_table

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_is_what_the_entries_say():
    page = (DOCS / "runtimes.md").read_text()
    assert page.partition("## The runtimes\n\n")[2].startswith(runtime_table() + "\n")
