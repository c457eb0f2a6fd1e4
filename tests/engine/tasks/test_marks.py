"""Marks in what an agent repeats: taken out wherever they are cut, and nothing else with them."""

from hypothesis import given, strategies as st

from codesdk.contract.messages import Code, Reasoning, Text
from codesdk.contract.ownership import MARK_START, MARKED, mark_for
from codesdk.engine.tasks.marks import Marks, Unmarked

ONE, OTHER = mark_for("call_01jqe8p1v0000000000000000a"), mark_for("call_01jqe8p1v0000000000000000b")
FOREIGN = mark_for("call_01jqe8p1v0000000000000000c")


def marks(*issued: str) -> Marks:
    found = Marks()
    for mark in issued:
        found.add(mark)
    return found


def streamed(pieces: list[str]) -> str:
    unmarked = Unmarked(marks(ONE, OTHER))
    return "".join([*(unmarked.feed(piece) for piece in pieces), unmarked.flush()])


def test_every_mark_looks_like_one():
    assert MARKED.fullmatch(ONE)
    assert ONE.startswith(MARK_START)


def test_issued_marks_go_and_all_else_stays():
    found = marks(ONE, OTHER)
    assert found.strip(f"a{ONE}b{OTHER}{FOREIGN}{MARK_START}") == f"ab{FOREIGN}{MARK_START}"
    same = f"nothing of ours {FOREIGN}"
    assert found.strip(same) is same


def test_a_mark_that_appears_when_another_is_taken_out_goes_too():
    assert marks(ONE, OTHER).strip(ONE[:20] + OTHER + ONE[20:]) == ""


def test_a_block_that_held_only_a_mark_goes_and_an_empty_one_of_the_models_stays():
    content = [Text(text=f"{ONE}\n"), Text(text=""), Reasoning(text=f"so {ONE}"), Code(code=f"x{OTHER}")]
    assert marks(ONE, OTHER).strip_content(content) == [Text(text=""), Reasoning(text="so "), Code(code="x")]


@given(
    st.lists(
        st.sampled_from([ONE, OTHER, FOREIGN, MARK_START, "[", "]", "[codesdk:", "a", " ", ONE[:-1], "é\n"]),
        max_size=12,
    ),
    st.data(),
)
def test_a_stream_cut_anywhere_gives_what_the_whole_text_gives(parts: list[str], data: st.DataObject):
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert streamed(pieces) == marks(ONE, OTHER).strip(text)


def test_only_what_may_begin_a_mark_is_held_back():
    unmarked = Unmarked(marks(ONE))
    assert unmarked.feed("see [1] and [co") == "see [1] and "
    assert unmarked.feed("py]") == "[copy]"
    assert unmarked.feed(ONE[:-1]) == ""
    assert unmarked.feed("x") == ONE[:-1] + "x"
    assert unmarked.feed(ONE) == ""


def test_a_mark_that_is_cut_inside_of_another_one_takes_both_along():
    assert streamed([ONE[:-1] + OTHER[:5], OTHER[5:], "] and"]) == " and"
