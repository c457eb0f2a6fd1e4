"""Files and inputs made to be slow: work grows with their size only, or is counted and given up.

None of these looks at a clock. Done in more than linear time, each would take minutes to hours.
"""

import difflib

import pytest
from hypothesis import given, strategies as st

from codesdk.tools.patch.hunks import DoesNotApply, apply_hunks
from codesdk.tools.patch.parsing import Hunk
from codesdk.tools.workspace.diff import unified
from codesdk.tools.workspace.matching import _similar, find_all, find_lines, no_match
from codesdk.tools.workspace.steps import Steps, TooMuchWork

SIZE = 1_000_000


def test_a_text_that_occurs_everywhere_is_looked_for_eleven_times():
    assert find_all(b"a" * SIZE, b"a" * (SIZE // 2), 11) == list(range(11))


@given(
    st.text("ab", max_size=20), st.text("ab", min_size=1, max_size=4), st.integers(1, 4), st.integers(0, 3)
)
def test_runs_of_lines_are_found_where_comparing_finds_them(lines, wanted, most, first):
    expected = [at for at in range(first, len(lines)) if lines[at : at + len(wanted)] == wanted]
    assert find_lines(lines, wanted, most, first) == expected[:most]


def test_similar_texts_are_found_in_a_file_of_equal_lines():
    old = "x\n" + "a \n" * (SIZE // 4) + "b"
    assert no_match("a.txt", b"a\n" * (SIZE // 2), old).endswith(
        "Read the file again and copy the text exactly."
    )


@given(st.text("a \n", max_size=12), st.text("a \n", min_size=1, max_size=6))
def test_similar_texts_are_those_that_comparing_finds(data, old):
    bare = ["".join(line.split()) for line in old.strip(" \n").split("\n")]
    there = ["".join(line.split()) for line in data.split("\n")]
    ends = len(bare) - 1

    def begins(at: int) -> bool:
        part = there[at : at + len(bare)]
        if len(bare) == 1:
            return bare[0] in part[0]
        same = part[1:-1] == bare[1:-1]
        return same and part[0].endswith(bare[0]) and part[-1].startswith(bare[-1])

    places = [at + 1 for at in range(len(there) - ends) if begins(at)] if any(bare) else []
    assert _similar(data.encode(), old.split("\n")) == places[:6]


def test_a_hunk_of_equal_lines_is_placed_in_a_file_of_equal_lines():
    lines = b"a\n" * (SIZE // 2)
    hunk = Hunk(1, [b"a\n"] * (SIZE // 4) + [b"b\n"], [b"c\n"], 1)
    with pytest.raises(DoesNotApply, match="hunk 1 does not fit: line 250001 of the file is 'a'"):
        apply_hunks(lines, [hunk])


def test_a_hunk_that_fits_everywhere_is_looked_for_eleven_times():
    with pytest.raises(DoesNotApply, match="could go to lines 1, 2, 3, 4, 5 and others;"):
        apply_hunks(b"a\n" * SIZE, [Hunk(2 * SIZE, [b"a\n"] * 10, [b"c\n"], 1)])


def test_a_patch_whose_hunks_are_all_elsewhere_is_given_up_after_so_many_steps():
    lines = b"".join(b"%d\n" % number for number in range(100_000))
    hunks = [Hunk(1, [b"%d\n" % (number + 7)], [b"new\n"], number) for number in range(90_000)]
    with pytest.raises(TooMuchWork):
        apply_hunks(lines, hunks)


def test_work_that_nobody_waits_for_ends_at_the_next_hunk():
    asked: list[None] = []

    def go_on() -> bool:
        asked.append(None)
        return len(asked) < 3

    with pytest.raises(TooMuchWork):
        apply_hunks(
            b"a\nb\nc\n", [Hunk(9, [line], [], 1) for line in (b"a\n", b"b\n", b"c\n")], Steps(go_on=go_on)
        )


def test_a_difference_of_many_equal_lines_is_counted_and_shown_as_a_whole(monkeypatch):
    """Each part between two matches is compared again, with every equal line of the other file."""
    searched: list[int] = []
    longest = difflib.SequenceMatcher.find_longest_match

    def counted(
        self: difflib.SequenceMatcher[bytes], alo: int, ahi: int, blo: int, bhi: int
    ) -> difflib.Match:
        searched.append((ahi - alo) * 1_000)
        return longest(self, alo, ahi, blo, bhi)

    monkeypatch.setattr(difflib.SequenceMatcher, "find_longest_match", counted)
    before = b"".join(b"a\n%d\n" % number for number in range(1_000))
    after = b"".join(b"a\n%d\n" % -number for number in range(1_000, 2_000))
    diff = unified("a.txt", b"x\n" + before, b"y\n" + after)
    assert diff.count("\n-") == 2_001
    assert sum(searched) < 10_000_000


def test_the_files_of_one_call_share_the_steps_of_comparing():
    steps = Steps(10)
    assert unified("a.txt", b"a\nb\nc\n", b"x\nb\ny\n", steps).count("\n-") == 2
    assert unified("a.txt", b"a\nb\nc\n", b"x\nb\ny\n", steps).count("\n-") == 3
