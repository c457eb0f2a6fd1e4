"""The page of the conformance matrix has every runtime that asks a model, every row, and a reason for what does not hold."""

from pathlib import Path

from tests.runtimes.programs import WHOLE

from codesdk.runtimes.registry import entries
from codesdk.testing.cells import Cell
from codesdk.testing.conformance import MATRIX
from codesdk.testing.matrix import Column, column_of, read_page, write_page

PAGE = (Path(__file__).parents[2] / "docs" / "runtimes" / "matrix.md").read_text()


def test_the_runtimes_on_the_page_have_the_versions_that_are_pinned_and_those_of_every_run_are_there():
    pinned = {
        column: f"{entry.program.command} {entry.program.version}" if entry.program else "built in"
        for entry in entries().values()
        if entry.wire is not None
        for column in entry.columns
    }
    shown = {name: column.program for name, column in read_page(PAGE).items()}
    assert shown.items() <= pinned.items()
    assert {*WHOLE, *entries()["minicode"].columns} <= set(shown)


def test_every_row_was_played_by_all_and_what_does_not_hold_says_why():
    for name, column in read_page(PAGE).items():
        assert list(column.cells) == list(MATRIX), name
        assert {cell.outcome for cell in column.cells.values()} <= {"pass", "unsupported"}, name
        assert [
            cell.name for cell in column.cells.values() if cell.outcome != "pass" and not cell.detail
        ] == []


def test_the_page_is_written_as_it_is_read():
    assert write_page(read_page(PAGE)) == PAGE


def test_a_page_keeps_what_did_not_run_this_time_and_forgets_what_another_version_did():
    cells = [Cell(row, "pass") for row in MATRIX[:2]]
    old = {"a": column_of("a 1", "2026-01-01", cells), "b": column_of("b 1", "2026-01-01", cells)}
    assert read_page(write_page(old)) == old
    again = Cell(MATRIX[1], "unsupported", "it cannot | says\nwho")
    new = {**old, "a": column_of("a 1", "2026-01-02", [again], old["a"])}
    read = read_page(write_page(new))
    assert read["b"] == old["b"]
    assert read["a"] == Column(
        program="a 1",
        day="2026-01-02",
        cells={MATRIX[0]: cells[0], MATRIX[1]: Cell(MATRIX[1], "unsupported", "it cannot / says who")},
    )
    assert column_of("a 2", "2026-01-02", [again], old["a"]).cells == {MATRIX[1]: again}


def test_what_is_no_such_page_has_no_columns():
    assert read_page("") == read_page("# Something else\n\n| a | b |\n|---|---|\n| 1 | 2 |\n") == {}
