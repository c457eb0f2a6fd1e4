"""Text of others, of any length, at every place that searches in it: the work grows with the length, and no faster.

Each text is so long that work that grows with its square would take minutes. Nothing here measures time.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.fuzz.guard import guarded
from tests.fuzz.owned import _plan

from codesdk import InvalidRequest, load_policy
from codesdk.contract import actions as act
from codesdk.contract.models import InstructionSources, Wire
from codesdk.contract.ownership import MARK_START, mark_for
from codesdk.contract.validation import MAX_WORDS_CHARS, explain, split_error
from codesdk.contract.workspace import Workspace
from codesdk.daemon.sse import MAX_PATTERN_CHARS, MAX_PATTERNS, chosen_types
from codesdk.engine.tasks.marks import Marks
from codesdk.gateway.capture import sources_cut
from codesdk.gateway.capture.source_files import MAX_ALL_BYTES, MAX_FILE_BYTES, read_sources
from codesdk.gateway.capture.sources_cut import Cut, Files, Steps
from codesdk.gateway.cassettes.volatile import MAX_CWDS, normalize
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.wires import keeping
from codesdk.gateway.wires.formats import codec_for
from codesdk.minicode.models.errors import error_of
from codesdk.minicode.models.settings import ModelSettings
from codesdk.policy.load import MAX_TRIES, parse_policy
from codesdk.tools import explain as explain_input

LONG = 1_000_000
ONE, OTHER = mark_for("call_01jqe8p1v0000000000000000a"), mark_for("call_01jqe8p1v0000000000000000b")


@pytest.fixture(autouse=True)
def _has_an_end() -> Iterator[None]:
    with guarded():
        yield


# --- errors that quote ------------------------------------------------------------------------------


def error(given: object) -> msgspec.ValidationError:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, act.CreateSession)
    return raised.value


@pytest.mark.parametrize("name", [" - at " * LONG, " - at `$." * LONG, "`" * LONG, "x" * LONG])
def test_a_field_that_nobody_knows_may_have_any_name(name: str):
    found = error({name: 1})
    assert len(explain(found, act.CreateSession)) <= MAX_WORDS_CHARS + 1
    assert len(explain_input("tool", {}, str(found))) < 2 * MAX_WORDS_CHARS


def test_the_place_of_an_error_is_told_however_long_its_words_are():
    words = f"Object contains unknown field `{'x - at `$.y`' * LONG}` - at `$.settings`"
    assert split_error(words)[1] == "settings"
    assert split_error("Expected `str`, got `int` - at `key` in `$.a[...]`") == (
        "Expected `str`, got `int`",
        "a[...]",
    )
    assert split_error("Object contains unknown field `x - at `$.y``") == (
        "Object contains unknown field `x - at `$.y``",
        "",
    )


# --- instruction files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<!--" * (LONG // 4),
        "---\n" + "a---\n" * (LONG // 5),
        "---\n" + "\n---x" * (LONG // 5),
        "---" + " " * LONG + "\nx" * 100,
        "-->" * (LONG // 3) + "<!--",
        "---\nname:" + " \n" * LONG + "x" * 100,
    ],
    ids=["comments", "lines", "ends", "blanks", "ends of comments", "fields"],
)
def test_a_file_of_beginnings_without_an_end_is_a_file(text: str):
    files = Files({"w/AGENTS.md": text.encode()})
    cut = Cut(text, Steps())
    files.claim_within(cut)
    assert [piece.origin for piece in cut.pieces() if piece.origin != "blank"] == ["file"]


@given(st.lists(st.sampled_from(["<!--", "-->", "<!", "--", ">", "-", " ", "\t", "\n", "a"]), max_size=30))
def test_comments_are_taken_out_as_an_expression_would(parts: list[str]):
    import re

    text = "".join(parts)
    wanted = re.sub(r"<!--.*?-->[ \t]*\n?", "", text, flags=re.DOTALL)
    assert sources_cut._without_comments(text) == wanted


def test_many_files_that_say_what_is_everywhere_are_looked_for_a_bounded_number_of_times():
    skills = {
        f"w/{number}/SKILL.md": f"---\nname: n{number}\ndescription: a\n---\n{number}".encode()
        for number in range(256)
    }
    steps = Steps()
    cut = Cut("a" * LONG, steps)
    Files(skills).claim_within(cut)
    assert steps.left < 0
    assert [piece.origin for piece in cut.pieces()] == ["runtime"]


def test_the_name_of_a_skill_is_looked_for_once_in_a_line():
    text = "b" * LONG + " n: aa\nn " + "a" * 1000
    cut = Cut(text, Steps())
    Files({"w/n/SKILL.md": b"---\nname: n\ndescription: aab\n---\nx"}).claim_within(cut)
    assert {piece.origin for piece in cut.pieces()} == {"runtime"}
    cut = Cut("b" * LONG + " n: aab\naab", Steps())
    Files({"w/n/SKILL.md": b"---\nname: n\ndescription: aab\n---\nx"}).claim_within(cut)
    assert [(piece.start, piece.end) for piece in cut.pieces() if piece.origin == "file"] == [
        (LONG + 4, LONG + 7)
    ]


def test_files_are_read_until_they_are_too_many_bytes_together(tmp_path: Path):
    for number in range(20):
        (tmp_path / f"d{number:02}").mkdir()
        (tmp_path / f"d{number:02}" / "TOY.md").write_bytes(b"x" * MAX_FILE_BYTES)
    found = read_sources(Workspace(str(tmp_path)), InstructionSources(names=("TOY.md",)))
    assert len(found) == MAX_ALL_BYTES // MAX_FILE_BYTES


# --- requests that are compared ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<cwd>" + " " * LONG,
        "<cwd> a" * (LONG // 7),
        "<cwd>" + " a" * LONG + "<",
        "call-" * (LONG // 5) + " 1",
        "1," * (LONG // 2) + " tokens ",
        ",,1" * (LONG // 3) + " tokens ",
        "Working directory: /" + "~/" * 2000 + "a " + "/~" * LONG,
        "/var/folders/" * (LONG // 13) + "1",
        "pid" + " " * LONG + "1",
        "Jan" + " " * LONG + "1",
    ],
    ids=["blanks", "starts", "words", "ids", "counts", "commas", "paths", "folders", "pid", "dates"],
)
def test_a_request_of_the_same_over_and_over_has_a_normal_form(text: str):
    normal = normalize({"system": text})
    assert normalize(normal) == normal


def test_of_many_working_directories_the_longest_count():
    named = [f"/w{number:06}" for number in range(50_000)]
    said = " ".join(f"Working directory: {path}" for path in named)
    assert normalize({"system": said})["system"].count("<cwd>") == MAX_CWDS


# --- marks ------------------------------------------------------------------------------------------


def test_marks_in_marks_go_in_one_pass():
    marks = Marks()
    marks.add(ONE)
    depth = 200_000
    assert marks.strip(ONE[:20] * depth + ONE[20:] * depth) == ""
    kept = MARK_START * depth + "]" * depth
    assert marks.strip(kept) is kept
    assert marks.strip("[" * 100_000 + ONE + "]" * 100_000) == "[" * 100_000 + "]" * 100_000


# --- answers of models ------------------------------------------------------------------------------


def test_calls_without_an_index_continue_the_last_one():
    calls = [{"index": number, "function": {"name": "f", "arguments": ""}} for number in range(60_000)]
    more = [{"function": {"arguments": ""}}] * 60_000
    message = {"tool_calls": [*calls, *more, {"function": {"arguments": '{"a":1}'}}]}
    decoder = codec_for("chat").decoder()
    decoder.whole(json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode())
    assert decoder.result().calls[-1].input == {"a": 1}


def test_any_number_of_denied_calls_in_one_chunk_is_said_at_once():
    calls = [
        {"index": number, "id": f"c{number}", "function": {"name": "Bash", "arguments": "{}"}}
        for number in range(50_000)
    ]
    chunk = {
        "choices": [
            {
                "index": 0,
                "delta": {"content": "x" * 2 * LONG, "tool_calls": calls},
                "finish_reason": "tool_calls",
            }
        ]
    }
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    answer = acts_for("chat").answer(_plan(), {})
    said = answer.feed(data) + answer.end()
    assert said.count(b"<mark ") == len(calls)


_DELTAS: dict[Wire, dict[str, object]] = {
    "anthropic": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word"}},
    "responses": {"type": "response.output_text.delta", "output_index": 0, "delta": "word"},
    "chat": {"choices": [{"index": 0, "delta": {"content": "word"}}]},
    "gemini": {"candidates": [{"index": 0, "content": {"parts": [{"text": "word"}]}}]},
}


@pytest.mark.parametrize("wire", _DELTAS)
def test_an_answer_without_an_end_is_kept_in_part_and_counted_whole(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keeping.Kept.__init__, "__defaults__", (10_000,))
    decoder = codec_for(wire).decoder()
    for _ in range(5_000):
        decoder.feed(b"data: " + json.dumps(_DELTAS[wire]).encode() + b"\n\n")
    seen = decoder.result()
    assert 100 < len(seen.text) < 10_000
    assert len(seen.text) + seen.unfinished == 20_000


class _Refusal(Exception):
    status_code = 400


def test_an_error_of_a_provider_may_have_any_length():
    settings = ModelSettings(provider="openai", model="m", key="k")
    assert error_of(_Refusal("token count " * LONG), settings).code == "MODEL_ERROR"
    assert error_of(_Refusal("The token count 9 exceeds 8."), settings).code == "CONTEXT_TOO_LARGE"


# --- what clients and operators give ----------------------------------------------------------------


def test_a_filter_has_a_bounded_number_of_short_patterns():
    with pytest.raises(InvalidRequest):
        chosen_types(",".join(f"task.{number}*" for number in range(MAX_PATTERNS + 1)))
    with pytest.raises(InvalidRequest):
        chosen_types("*" * (MAX_PATTERN_CHARS + 1))
    assert chosen_types(",".join(["task.*"] * LONG))


def _rules(count: int, examples: int) -> str:
    match = ", ".join(['{ tool = "t.x", path = "%d" }'] * examples)
    return "\n".join(
        f'[[rules]]\nid = "r{number}"\nresult = "ask"\npath = "{number}"\nmatch = [{match.replace("%d", str(number))}]'
        for number in range(count)
    )


def test_the_examples_of_many_rules_are_tried_a_bounded_number_of_times():
    assert parse_policy(_rules(500, 1), "p").rules
    with pytest.raises(InvalidRequest, match="too many examples"):
        parse_policy(_rules(2_000, MAX_TRIES // 2_000 // 2_000 + 1), "p")


def test_a_policy_of_any_size_is_not_read_whole():
    with pytest.raises(InvalidRequest, match="at most"):
        load_policy("/dev/zero")
