"""The tables in docs/runtimes.md are those that the entries of runtimes and programs make."""

from pathlib import Path

from codesdk.runtimes import program_table, runtime_table

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_is_what_the_entries_say():
    page = (DOCS / "runtimes.md").read_text()
    assert page.partition("## The runtimes\n\n")[2].startswith(runtime_table() + "\n")


def test_the_table_of_programs_is_what_the_locks_pin():
    page = (DOCS / "runtimes.md").read_text()
    assert (
        page.partition("### Folders of their own\n\n")[2]
        .partition("\n\n")[2]
        .startswith(program_table() + "\n")
    )
