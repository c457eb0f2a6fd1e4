"""Reading scripts: what they become, and what is said about the ones that are wrong."""

import contextlib
import json
import os
from typing import Any, get_args

import msgspec
import pytest
import yaml
from hypothesis import example, given, strategies as st

from codesdk.contract.errors import ErrorCode, InvalidRequest
from codesdk.script import (
    Expect,
    Script,
    Turn,
    Usage,
    dump,
    load_script,
    model as m,
    parse_object,
    parse_script,
)

FULL = """\
name: everything
loop: true
turns:
  - expect: {user_contains: hello, tool_result_contains: [a, b], offered: workspace.read, not_offered: [x.y]}
    steps:
      - text: one
      - text: [a, b]
      - reasoning: hm
      - call: {tool: workspace.read, input: {path: a.txt, deep: [1, 2.5, null, true]}, id: first}
      - call: {tool: workspace.read}
      - delay_s: 1
      - burst: {count: 3, size: 2, of: reasoning}
      - await_steer: true
      - stall: stopped
      - malformed: payload
      - duplicate_ids: call
      - events_after_stop: 4
      - ignore_stop: true
      - retract: the stream broke
      - fail: {code: RATE_LIMITED, message: later, retryable: true}
    usage: {input: 1, output: 2, cache_read: 3, cache_write: 4, reasoning: 5, cost_usd: 0.5}
    stop_reason: pause
  - steps: [{delay_s: 0.5}, {http: {status: 429, retry_after_s: 2}}]
  - {}
asides: {title: A title}
"""
FULL_SCRIPT = Script(
    name="everything",
    loop=True,
    turns=(
        Turn(
            expect=Expect(
                user_contains=("hello",),
                tool_result_contains=("a", "b"),
                offered=("workspace.read",),
                not_offered=("x.y",),
            ),
            steps=(
                m.TextStep(("one",)),
                m.TextStep(("a", "b")),
                m.ReasoningStep(("hm",)),
                m.CallStep("workspace.read", {"path": "a.txt", "deep": [1, 2.5, None, True]}, "first"),
                m.CallStep("workspace.read", {}),
                m.DelayStep(1),
                m.BurstStep(3, 2, "reasoning"),
                m.AwaitSteerStep(),
                m.StallStep("stopped"),
                m.MalformedStep("payload"),
                m.DuplicateStep("call"),
                m.LateEventsStep(4),
                m.IgnoreStopStep(),
                m.RetractStep("the stream broke"),
                m.FailStep("RATE_LIMITED", "later", True),
            ),
            usage=Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5, cost_usd=0.5),
            stop_reason="pause",
        ),
        Turn(steps=(m.DelayStep(0.5), m.HttpStep(429, 2))),
        Turn(),
    ),
    asides={"title": "A title"},
)
ENDINGS = [
    m.HttpStep(500),
    m.ResetStep(),
    m.TruncateStep(),
    m.SilenceStep(),
    m.ContextTooLargeStep(),
    m.RefusalStep("no"),
    m.MaxTokensStep(),
    m.EmptyStep(),
    m.CrashStep("raise"),
    m.CrashStep("end"),
    m.FailStep("MODEL_ERROR", "broken"),
]


def problem(text: str, source: str = "demo.yaml") -> str:
    with pytest.raises(InvalidRequest) as caught:
        parse_script(text, source)
    assert caught.value.code == "INVALID_REQUEST"
    return caught.value.message


def steps(*lines: str) -> str:
    return "turns:\n  - steps:\n" + "".join(f"      - {line}\n" for line in lines)


def test_a_script_with_everything_becomes_its_types():
    assert parse_script(FULL, "full.yaml") == FULL_SCRIPT


def test_json_gives_the_same_script_whatever_its_white_space(tmp_path):
    for number, indent in enumerate((None, 2, "\t")):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(dump(FULL_SCRIPT), indent=indent))
        assert load_script(path) == FULL_SCRIPT


def test_json_inside_a_yaml_file_is_fine_too():
    assert parse_script(json.dumps(dump(FULL_SCRIPT), indent=1), "x.yaml") == FULL_SCRIPT


def test_a_byte_order_mark_does_not_matter(tmp_path):
    for name in ("a.json", "a.yaml"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + json.dumps(dump(FULL_SCRIPT)).encode())
        assert load_script(tmp_path / name) == FULL_SCRIPT


def test_words_that_old_yaml_takes_for_something_else_stay_words():
    words = ["no", "on", "2024-01-01", "1_000", "0x1f", "1:30", "1e", "."]
    script = parse_script(steps(f"text: [{', '.join(words)}]"), "x.yaml")
    assert script.turns[0].steps == (m.TextStep(tuple(words)),)


def test_an_alias_repeats_what_it_names():
    text = "turns:\n  - &hi {steps: [{text: hi}]}\n  - *hi\n  - steps: [{text: &word bye}, {text: *word}]\n"
    hi, bye = Turn(steps=(m.TextStep(("hi",)),)), m.TextStep(("bye",))
    assert parse_script(text, "x.yaml").turns == (hi, hi, Turn(steps=(bye, bye)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (steps("text: ok", "delay_s: fast"), '4: turns[0].steps[1].delay_s: expected a number, got "fast"'),
        (steps("delay_s: true"), "3: turns[0].steps[0].delay_s: expected a number, got true"),
        (steps("delay_s: -1"), "3: turns[0].steps[0].delay_s: must be at least 0, got -1"),
        (steps("delay_s: 100000"), "3: turns[0].steps[0].delay_s: must be at most 86400, got 100000"),
        (steps("dely_s: 1"), "3: turns[0].steps[0].dely_s: unknown step; did you mean delay_s?"),
        (
            steps("text: a\n        delay_s: 1"),
            "3: turns[0].steps[0]: a step has exactly one kind, this has text and delay_s; put each behind its own dash",
        ),
        (
            steps("{}"),
            "3: turns[0].steps[0]: a step has exactly one kind, this has none; put each behind its own dash",
        ),
        (steps("hello"), '3: turns[0].steps[0]: expected a mapping, got "hello"'),
        (steps("text: []"), "3: turns[0].steps[0].text: expected at least one entry, got an empty list"),
        (steps("text: 7"), "3: turns[0].steps[0].text: expected text or a list, got 7"),
        (steps("text: [a, 7]"), "3: turns[0].steps[0].text[1]: expected text, got 7"),
        (steps("text:"), "3: turns[0].steps[0].text: expected text or a list, got nothing"),
        (steps("call: {input: {}}"), "3: turns[0].steps[0].call: the field tool is missing"),
        (
            steps("call: {tool: a.b, inptu: {}}"),
            "3: turns[0].steps[0].call.inptu: unknown field; did you mean input?",
        ),
        (
            steps("call: {tool: a.b, id: '1'}"),
            "3: turns[0].steps[0].call.id: must be a letter followed by letters, digits, _ or -, at most 64 in all,"
            ' got "1"',
        ),
        (steps("call: {tool: ''}"), '3: turns[0].steps[0].call.tool: must not be empty, got ""'),
        (
            steps("call: {tool: a.b, id: x}", "call: {tool: a.b, id: x}"),
            '4: turns[0].steps[1].call.id: "x" is already taken in this turn',
        ),
        (steps("await_steer: false"), "3: turns[0].steps[0].await_steer: expected true, got false"),
        (
            steps("crash: rais"),
            '3: turns[0].steps[0].crash: "rais" is not possible here; did you mean raise?',
        ),
        (steps("crash: 1"), "3: turns[0].steps[0].crash: 1 is not possible here; known are end, raise"),
        (steps("burst: {count: 0}"), "3: turns[0].steps[0].burst.count: must be at least 1, got 0"),
        (
            steps("burst: {count: 1000000, size: 101}"),
            "3: turns[0].steps[0].burst: count times size is more than 100000000 characters",
        ),
        (steps("http: {status: 200}"), "3: turns[0].steps[0].http.status: must be at least 400, got 200"),
        (
            steps("text: a", "empty: true"),
            "4: turns[0].steps[1].empty: only a delay_s can come before it",
        ),
        (
            steps("fail: {code: NOPE, message: x}"),
            '3: turns[0].steps[0].fail.code: "NOPE" is not possible here',
        ),
        ("turns:\n- stop_raeson: x", "2: turns[0].stop_raeson: unknown field; did you mean stop_reason?"),
        ("turns:\n- usage: {input: 1.5}", "2: turns[0].usage.input: expected a whole number, got 1.5"),
        ("turns:\n- {}\nloop: 1", "3: loop: expected true or false, got 1"),
        ("turns:\n- {}\nzzz: 1", "3: zzz: unknown field; known are asides, loop, name, turns"),
        ("turns:\n- {}\nasides: {title: [a]}", "3: asides.title: expected text, got a list"),
        ("turns: []", "1: turns: expected at least one entry, got an empty list"),
        ("name: x", "1: the field turns is missing"),
        ("turns: 5", "1: turns: expected a list, got 5"),
        ("- a", "1: expected a mapping, got a list"),
        ("name: a\nname: b\nturns: [{}]", '2: "name" is given twice; the first is on line 1'),
        ("? [a]\n: b", "1: a field name must be a word, not a list or a mapping"),
        ("", "1: the script is empty"),
        ("# nothing", "1: the script is empty"),
        ("turns: [{}]\n---\nturns: [{}]", "2: a script is one document; remove the second ---"),
        ("turns: *nowhere", "1: *nowhere refers to nothing that is complete before it"),
        ("turns: &a [*a]", "1: *a refers to nothing that is complete before it"),
        (
            "turns:\n- !!python/object/apply:os.system [x]",
            "2: the tag tag:yaml.org,2002:python/object/apply:os.system",
        ),
        ("turns: !!binary x", "1: the tag tag:yaml.org,2002:binary is not supported; a script is plain data"),
        (steps("call: {tool: a.b, input: .inf}"), "3: a number must be finite"),
        (steps("call: {tool: a.b, input: 1e999}"), "3: a number must be finite"),
        (
            steps("call: {tool: a.b, input: 9007199254740992}"),
            "3: a whole number must be within ±9007199254740991",
        ),
        (steps(f"call: {{tool: a.b, input: {'9' * 5000}}}"), "3: this number is too long"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_field(text, message):
    assert problem(text).startswith("demo.yaml:" + message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"turns": [\n\t{"steps": [\n\t\t{"delay_s": "x"}]}]}',
            '3: turns[0].steps[0].delay_s: expected a number, got "x"',
        ),
        (
            '{"turns": [{}],\n "loop": true,\n "loop": true}',
            '3: "loop" is given twice; the first is on line 2',
        ),
        ('{"turns": [{}],\n"loop" true}', "2: this is not JSON: "),
        ('{"turns": [{"steps":\n[{"text": "\\ud800"}]}]}', "2: half of a surrogate pair is not a character"),
        ('{"turns": [{}],\n"\\udfff": 1}', "2: half of a surrogate pair is not a character"),
        ('{"turns":\nNaN}', "2: a number must be finite"),
        ('{"a": "} {\\" \\n", "turns":\n5}', "1: a: unknown field; known are asides, loop, name, turns"),
    ],
)
def test_a_mistake_in_json_is_named_in_the_same_way(text, message):
    assert problem(text, "demo.json").startswith("demo.json:" + message)


def test_a_mistake_in_an_object_is_named_without_a_line():
    with pytest.raises(InvalidRequest) as caught:
        parse_object({"turns": [{"steps": [{"delay_s": "x"}]}]}, "config")
    assert caught.value.message == 'config: turns[0].steps[0].delay_s: expected a number, got "x"'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "config: expected a mapping, got nothing"),
        ({1: 2}, "config: a field name must be text, not 1"),
        ({"turns": {1, 2}}, "config: set is not plain data"),
        ({"turns": b"x"}, "config: bytes is not plain data"),
        ({"turns": [{"steps": [{"text": "\ud800"}]}]}, "config: half of a surrogate pair is not a character"),
    ],
)
def test_an_object_that_is_not_plain_data_is_refused(value, message):
    with pytest.raises(InvalidRequest) as caught:
        parse_object(value, "config")
    assert caught.value.message == message


def test_an_object_that_contains_itself_is_refused():
    value: dict[str, Any] = {}
    value["turns"] = [value]
    with pytest.raises(InvalidRequest, match="nested deeper than 64 levels"):
        parse_object(value, "config")


@pytest.mark.parametrize("ending", ENDINGS, ids=m.key_of)
def test_nothing_can_follow_a_step_that_ends_the_turn(ending):
    turn = Turn(steps=(ending, m.DelayStep(1)))
    with pytest.raises(InvalidRequest, match="ends the turn; nothing can follow it"):
        parse_object(dump(Script(turns=(turn,))), "x")
    alone = Script(turns=(Turn(steps=(ending,)),))
    assert parse_object(dump(alone), "x") == alone


@pytest.mark.parametrize("source", ["deep.yaml", "deep.json"])
@pytest.mark.parametrize("depth", [65, 5_000, 500_000])
def test_deep_nesting_is_refused(source, depth):
    assert "nested deeper than 64 levels" in problem("[" * depth + "]" * depth, source)


def test_nesting_up_to_the_bound_is_fine():
    value: Any = "x"
    for _ in range(57):  # turns, turn, steps, step, call, input and the word itself are the other seven
        value = [value]
    script = Script(turns=(Turn(steps=(m.CallStep("a.b", value),)),))
    assert parse_script(json.dumps(dump(script)), "x.json") == script
    deeper = Script(turns=(Turn(steps=(m.CallStep("a.b", [value]),)),))
    assert "nested deeper" in problem(json.dumps(dump(deeper)), "x.json")


def test_aliases_that_multiply_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "more than 1000000 values, counting repeated aliases" in problem("\n".join(lines))


def test_aliases_that_nest_are_refused():
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 70)]
    assert "nested deeper than 64 levels" in problem("\n".join(lines))


def test_a_file_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(10_000_001)
    with pytest.raises(InvalidRequest, match="a script may have at most 10000000 bytes"):
        load_script(path)


def test_a_text_that_is_too_large_is_refused():
    assert problem("x" * 10_000_001) == "demo.yaml: a script may have at most 10000000 bytes"


def test_bytes_that_are_not_text_are_refused_with_their_line(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: x\nturns:\n  - steps: [{text: \xe9}]\n")
    with pytest.raises(InvalidRequest) as caught:
        load_script(path)
    assert caught.value.message == f"{path}:3: the script is not UTF-8 text"


def test_what_is_not_a_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "missing.yaml", tmp_path, tmp_path / "fifo"):
        with pytest.raises(InvalidRequest) as caught:
            load_script(path)
        assert caught.value.message == f"{path}: there is no script file here"


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t- x", 'a: "', "a: \x00", "%YAML 9\n---\na", "&"])
def test_text_that_is_not_yaml_is_refused(text):
    assert problem(text).startswith("demo.yaml:")


@given(
    st.text(max_size=200) | st.binary(max_size=100).map(lambda data: data.decode("utf-8", "surrogateescape"))
)
def test_no_text_makes_the_reader_fail_in_another_way(text):
    for source in ("x.yaml", "x.json"):
        with contextlib.suppress(InvalidRequest):
            parse_script(text, source)


words = st.text(st.characters(codec="utf-8"), max_size=20)
chunks = st.lists(words, min_size=1, max_size=3).map(tuple)
some_words = st.lists(words, max_size=2).map(tuple)
numbers = st.floats(0, 1000) | st.integers(0, 1000)
plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
middle_steps = st.one_of(
    chunks.map(m.TextStep),
    chunks.map(m.ReasoningStep),
    st.builds(m.CallStep, words.filter(bool), plain_data),
    numbers.map(m.DelayStep),
    st.builds(
        m.BurstStep, st.integers(1, 1000), st.integers(1, 1000), st.sampled_from(["text", "reasoning"])
    ),
    st.just(m.AwaitSteerStep()),
    st.builds(m.StallStep, st.sampled_from(["stopped", "closed"])),
    st.builds(m.MalformedStep, st.sampled_from(["item", "payload"])),
    st.builds(m.DuplicateStep, st.sampled_from(["call", "message"])),
    st.integers(1, 1000).map(m.LateEventsStep),
    st.just(m.IgnoreStopStep()),
    words.map(m.RetractStep),
    words.map(m.MalformedFrameStep),
)
last_steps = st.one_of(
    st.builds(m.FailStep, st.sampled_from(get_args(ErrorCode)), words, st.booleans()),
    st.sampled_from(
        [m.ResetStep(), m.TruncateStep(), m.SilenceStep(), m.MaxTokensStep(), m.CrashStep("raise")]
    ),
    words.map(m.RefusalStep),
)
counts = st.integers(0, 10**6)
turns = st.builds(
    Turn,
    steps=st.builds(
        lambda middle, last: (*middle, *last),
        st.lists(middle_steps, max_size=5),
        st.lists(last_steps, max_size=1),
    )
    | st.builds(lambda status, wait: (m.HttpStep(status, wait),), st.integers(400, 599), st.none() | numbers),
    expect=st.none()
    | st.builds(
        Expect,
        user_contains=some_words,
        tool_result_contains=some_words,
        offered=some_words,
        not_offered=some_words,
    ),
    usage=st.none()
    | st.builds(
        Usage,
        input=counts,
        output=counts,
        cache_read=counts,
        cache_write=counts,
        reasoning=counts,
        cost_usd=st.none() | numbers,
    ),
    stop_reason=st.none() | words.filter(bool),
)
scripts = st.builds(
    Script,
    turns=st.lists(turns, min_size=1, max_size=3).map(tuple),
    name=st.none() | words,
    loop=st.booleans(),
    asides=st.dictionaries(words, words, max_size=2),
)


@given(scripts)
@pytest.mark.slow
def test_a_script_that_is_written_down_is_read_back_equal(script):
    data = dump(script)
    assert parse_object(data, "object") == script
    assert parse_script(json.dumps(data, indent="\t"), "a.json") == script
    assert parse_script(json.dumps(data, ensure_ascii=False), "a.json") == script


class Quoting(yaml.SafeDumper):
    """Quotes every text: the library writes YAML 1.1, where 0E0 is a word; we read 1.2, where it is a number."""


Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


@given(scripts)
@example(m.Script(turns=(m.Turn(steps=(m.TextStep(chunks=("x",)),)),), name="0E0"))
def test_a_script_written_by_a_yaml_library_is_read_back_equal(script):
    written = yaml.dump(dump(script), Dumper=Quoting, allow_unicode=False)
    assert parse_script(written, "a.yaml") == script


def test_every_step_has_a_key_of_its_own():
    kinds = get_args(m.PlainStep) + get_args(m.RuntimeOnlyStep) + get_args(m.GatewayOnlyStep)
    keys = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(keys)) == len(keys)
    assert set(msgspec.structs.fields(m.Step)) == set()


def test_turns_are_counted_from_zero_and_end_unless_they_loop():
    first, second = Turn(stop_reason="a"), Turn(stop_reason="b")
    once, again = Script(turns=(first, second)), Script(turns=(first, second), loop=True)
    assert [once.turn(n) for n in range(3)] == [first, second, None]
    assert [again.turn(n) for n in range(5)] == [first, second, first, second, first]
