"""Cassettes as documents, the rules for volatile parts, what is taken out of an exchange, and the nearest request."""

import json
import re
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.gateway.cassettes import cassette as cassettes
from codesdk.gateway.cassettes.cassette import (
    Chunk,
    Exchange,
    Tape,
    dump_cassette,
    load_cassette,
    parse_cassette,
    request_hash,
    save_cassette,
)
from codesdk.gateway.cassettes.nearest import MAX_DIFFERENCES, describe_differences, find_nearest, flatten
from codesdk.gateway.cassettes.scattered import Edit, splice
from codesdk.gateway.cassettes.scrub import Scrubber, clean_chunks, clean_headers, clean_query
from codesdk.gateway.cassettes.volatile import SESSION_FIELDS, normalize
from codesdk.gateway.cassettes.volatile_rules import DIGIT_RULES, RULES, Rule
from codesdk.gateway.reply import RawRequest
from codesdk.redaction.redactor import Redactor

DOCUMENT = Path(__file__).parents[3] / "docs" / "gateway.md"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "sources"
CANARY = "canary-7f3e9b1c5d2a4860"
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=12)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


def normalize_text(text: str) -> str:
    """Return one text of a request without its volatile parts."""
    return normalize({"system": text})["system"]


def exchange(number: int = 1, **fields: Any) -> Exchange:
    """Return an exchange that has something in every field."""
    given: dict[str, Any] = {
        "number": number,
        "wire": "gemini",
        "method": "POST",
        "path": "/v1beta/models/m:streamGenerateContent",
        "query": "alt=sse",
        "hash": "sha256:" + "0" * 64,
        "purpose": "main",
        "request": {"contents": [{"parts": [{"text": "Grüße\u2028"}]}]},
        "status": 200,
        "headers": {"content-type": "text/event-stream"},
        "chunks": [Chunk(ms=0, text="data: {}\n\n"), Chunk(ms=12, data=b"\xff\x00")],
        "ending": "complete",
    }
    return Exchange(**(given | fields))


def lines_of(*values: Any) -> bytes:
    """Return a cassette with lines of one's own making."""
    header = {"format": "codesdk-cassette", "version": 1}
    return b"".join(msgspec.json.encode(value) + b"\n" for value in (header, *values))


def plain(**fields: Any) -> dict[str, Any]:
    """Return a good line, changed."""
    return {**msgspec.to_builtins(exchange()), **fields}


# --- the document ---


def test_a_cassette_is_read_as_it_was_written(tmp_path: Path):
    written = [exchange(), exchange(2, status=None, headers={}, chunks=[], query="", ending="abandoned")]
    file = tmp_path / "c.jsonl"
    save_cassette(file, dump_cassette(written))
    assert load_cassette(file) == written
    first, *rest = file.read_text().split("\n")
    assert json.loads(first) == {"format": "codesdk-cassette", "version": 1}
    assert [json.loads(line)["number"] for line in rest[:-1]] == [1, 2]
    assert rest[-1] == ""


def test_only_whole_answers_and_resets_can_be_replayed():
    endings = {ending: exchange(ending=ending).can_replay for ending in cassettes.Ending.__args__}
    assert endings == {"complete": True, "reset": True, "abandoned": False, "too_large": False}
    assert not exchange(status=None).can_replay


def test_fields_that_are_not_known_are_passed_over():
    assert parse_cassette(lines_of(plain(mood="good")), "c") == [exchange()]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "c, line 1: this is not a cassette"),
        (b"turns: []\n", "c, line 1: this is not a cassette"),
        (b'{"format":"other","version":1}\n', "c, line 1, format: this is not a cassette"),
        (
            b'{"format":"codesdk-cassette","version":2}\n',
            "c, line 1, version: version 2 is not known here; this release reads version 1",
        ),
        (lines_of(plain(), plain(status="ok")), "c, line 3, status: Expected `int | null`, got `str`"),
        (lines_of(plain(wire="smoke")), "c, line 2, wire: Invalid enum value 'smoke'"),
        (lines_of(plain(chunks=[{"text": "x"}])), "c, line 2, chunks[0]: Object missing required field `ms`"),
        (lines_of({"number": 1}), "c, line 2: Object missing required field `wire`"),
        (lines_of(plain())[:-20], "c, line 2: the line is not JSON"),
        (lines_of(plain()) + b"\n", "c, line 3: the line is not JSON"),
        (lines_of() + b'{"request":{"a":' + b"[" * 100_000, "c, line 2: the line is not JSON"),
        (lines_of() + b'{"number": "\xff"}', "c, line 2"),
    ],
)
def test_what_is_wrong_with_a_cassette_is_said_with_line_and_field(data: bytes, message: str):
    with pytest.raises(InvalidRequest) as caught:
        parse_cassette(data, "c")
    assert str(caught.value).startswith(message)


def test_a_cassette_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    data = dump_cassette([exchange(), exchange(2)])
    (tmp_path / "c").write_bytes(data)
    monkeypatch.setattr(cassettes, "MAX_BYTES", len(data) - 1)
    with pytest.raises(InvalidRequest, match=r"at most .* bytes"):
        load_cassette(tmp_path / "c")
    monkeypatch.setattr(cassettes, "MAX_BYTES", len(data))
    monkeypatch.setattr(cassettes, "MAX_EXCHANGES", 1)
    with pytest.raises(InvalidRequest, match="at most 1 exchanges"):
        load_cassette(tmp_path / "c")


def test_a_file_that_is_not_there_or_a_directory_is_not_a_cassette(tmp_path: Path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidRequest, match="there is no cassette here"):
            load_cassette(path, "the recording")


def test_a_tape_gives_the_order_of_the_requests_and_says_what_it_had_no_room_for():
    size = len(msgspec.json.encode(exchange())) + 1
    tape = Tape(max_bytes=2 * size)
    for number in (2, 1, 3):
        tape.add(exchange(number))
    assert [kept.number for kept in parse_cassette(tape.dump(), "c")] == [1, 2]
    assert len(tape) == 2
    assert tape.problems == ["Exchange 3 was not kept: the cassette is full."]


def test_a_cassette_is_written_whole_for_its_owner_alone_or_not_at_all(tmp_path: Path):
    file = tmp_path / "c"
    file.write_text("old")
    save_cassette(file, b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(StorageFailure, match="cannot be written"):
        save_cassette(tmp_path / "none" / "c", b"new")
    (tmp_path / "full").mkdir()
    with pytest.raises(StorageFailure, match="cannot be written"):
        save_cassette(tmp_path / "full", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "full"]


# --- volatile parts ---


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_does_to_its_example_what_it_says(rule: Rule):
    assert rule.pattern.sub(rule.becomes, rule.before) == rule.after
    assert normalize_text(rule.before) == rule.after
    assert normalize_text(rule.after) == rule.after
    assert not rule.signs or any(sign in rule.before for sign in rule.signs)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_documented_with_its_example(rule: Rule):
    assert f"| {rule.name} | `{rule.before}` | `{rule.after}` |" in DOCUMENT.read_text()


def test_a_rule_for_digits_finds_nothing_without_one():
    assert not [rule.name for rule in DIGIT_RULES if not any(c.isdigit() for c in rule.before)]


@pytest.mark.parametrize(
    "text",
    [
        "version 2.1.325 of gpt-4o-2024-08-06 and claude-sonnet-4-5-20250929",
        "src/app.py:10:20: E501 line too long (120 > 110)",
        "take 30 s at most; 5 tests, 3 failed; msg_processing, call_function, exec_command",
        "https://api.example.com:8443/v1, 10.0.0.1:80, 1/2/3, 12:30",
        "/usr/lib/python3.11/site-packages, /tmpfile, /homepage, rootless",
        "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "0x1F, 1234567890123456789, 42, 2025",
    ],
)
def test_what_is_not_volatile_stays(text: str):
    assert normalize_text(text) == text


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("# Environment\nPrimary working directory: {}\nIs a git repository: true", "/srv/ada/project"),
        ("<environment_context>\n  <cwd>{}</cwd>\n</environment_context>", "/srv/two words"),
        ("I'm currently working in the directory: {}", "/opt/x.y-z"),
        ("  Working directory: {}\n  Workspace root folder: {}", "/tmp/abc/ws"),
    ],
)
def test_the_working_directory_that_a_request_names_is_the_same_everywhere_in_it(said: str, path: str):
    def body(cwd: str) -> dict[str, Any]:
        tool = {"type": "tool_use", "id": "a", "input": {"path": f"{cwd}/a.py"}}
        notes = f"see {cwd}, {cwd}/b.py, {cwd}2 and /home/me/projects/{cwd.replace('/', '-')}/x.jsonl"
        return {"system": said.format(cwd, cwd), "messages": [{"content": [tool]}, {"content": notes}]}

    normal = normalize(body(path))
    assert normal["system"] == said.format("<cwd>", "<cwd>")
    assert normal["messages"][0]["content"][0]["input"] == {"path": "<cwd>/a.py"}
    assert normal["messages"][1]["content"].startswith("see <cwd>, <cwd>/b.py, ")
    if "/tmp" not in path and " " not in path:
        assert f", {path}2 and <home>/projects/" in normal["messages"][1]["content"]
    assert normalize(body("/elsewhere/p"))["messages"][0] == normal["messages"][0]


@pytest.mark.parametrize("said", ["Working directory: /", "Working directory: /tmp", "<cwd>relative</cwd>"])
def test_a_working_directory_that_says_nothing_is_not_taken_for_one(said: str):
    assert normalize({"system": said, "a": "/usr/relative"}) == {"system": said, "a": "/usr/relative"}


def test_fields_that_name_a_session_do_not_count_but_whether_they_are_there_does():
    body = dict.fromkeys(SESSION_FIELDS, "something") | {"model": "gpt-4o-2024-08-06"}
    assert normalize(body) == dict.fromkeys(SESSION_FIELDS, "<session>") | {"model": "gpt-4o-2024-08-06"}
    assert normalize({"metadata": {"user_id": "user_1_session_2"}}) == {"metadata": "<session>"}
    assert normalize({"messages": [{"user": "ada"}]}) == {"messages": [{"user": "ada"}]}


ANOTHER_RUN = {
    r"/workspace\b": "/srv/elsewhere/copy",
    r"/home/user\b": "/Users/ada",
    r"2000-01-01": "2031-12-29",
    r"0{8}-0{4}-0{4}-0{4}-0{12}": "5f0c9f7e-3d2b-4b1a-9c8d-7e6f5a4b3c2d",
    r"billing-header: redacted": "billing-header: cc_version=2.1.325.0ab; cch=12345;",
    r"\d+ tokens left": "14987213 tokens left",
    r"Wall time: [\d.]+": "Wall time: 1.2345",
    r"OS Version: \w+": "OS Version: Linux 6.1.0-13-amd64",
    r"<timezone>[^<]*": "<timezone>Europe/Vienna",
    r"_scripted(\d+)": r"_01ScrXpt\1",
}


@pytest.mark.parametrize("file", sorted(FIXTURES.glob("*.json")), ids=lambda file: file.stem)
def test_what_real_programs_send_is_the_same_in_another_run_and_not_with_another_question(file: Path):
    text = json.dumps(json.loads(file.read_text())["requests"])
    again = text
    for pattern, other in ANOTHER_RUN.items():
        again = re.sub(pattern, other, again)
    assert again != text
    for one, other in zip(json.loads(text), json.loads(again), strict=True):
        assert flatten(normalize(one)) == flatten(normalize(other))
    requests = [json.dumps(normalize(request)) for request in json.loads(text)]
    assert len(set(requests)) == len(requests)


def conversation(first: str, second: str, *, swapped: bool = False) -> list[dict[str, Any]]:
    """Return one exchange with two calls, in all four formats."""
    answers = (second, first) if swapped else (first, second)
    return [
        {
            "messages": [
                {
                    "content": [
                        {"type": "tool_use", "id": i, "input": {"id": "issue-12"}} for i in (first, second)
                    ]
                },
                {"content": [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in answers]},
            ]
        },
        {
            "input": [
                *(
                    {"type": "function_call", "id": f"fc{i}", "call_id": i, "arguments": "{}"}
                    for i in (first, second)
                ),
                *({"type": "function_call_output", "call_id": i, "output": "ok"} for i in answers),
            ]
        },
        {
            "messages": [
                {
                    "tool_calls": [
                        {"id": i, "function": {"name": "f", "arguments": "{}"}} for i in (first, second)
                    ]
                },
                *({"role": "tool", "tool_call_id": i, "content": "ok"} for i in answers),
            ]
        },
        {
            "contents": [
                {"parts": [{"functionCall": {"id": i, "args": {"id": "issue-12"}}} for i in (first, second)]},
                {"parts": [{"functionResponse": {"id": i, "response": {"id": "x"}}} for i in answers]},
            ]
        },
    ]


def test_ids_of_calls_do_not_count_but_which_result_belongs_to_which_call_does():
    one, other, swapped = (
        [normalize(body) for body in conversation("a", "b")],
        [normalize(body) for body in conversation("shell-1759397415120-c4f", "9")],
        [normalize(body) for body in conversation("a", "b", swapped=True)],
    )
    assert one == other
    assert all(normal != wrong for normal, wrong in zip(one, swapped, strict=True))
    assert one[0]["messages"][0]["content"][0] == {
        "type": "tool_use",
        "id": "<id 1>",
        "input": {"id": "issue-12"},
    }
    assert one[3]["contents"][1]["parts"][0]["functionResponse"] == {"id": "<id 1>", "response": {"id": "x"}}


@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=4))
def test_normalizing_changes_nothing_given_and_nothing_more_the_second_time(body: dict[str, Any]):
    before = msgspec.json.encode(body)
    normal = normalize(body)
    assert msgspec.json.encode(body) == before
    assert normalize(normal) == normal
    assert normalize(dict(reversed(body.items()))) == normal


def test_requests_are_the_same_by_all_but_their_volatile_parts():
    def key(path: str = "/v1/messages", query: str = "", **body: Any) -> str:
        return request_hash(
            "anthropic", "POST", path, query, {"model": "m", "system": "It is 2025-10-02."} | body
        )

    assert key() == key(system="It is 2026-01-31.")
    assert (
        len({key(), key("/v1/messages/count_tokens"), key(query="alt=sse"), key(model="n"), key(top_k=1)})
        == 5
    )
    assert key(seed=2**70) != key(seed=2**70 + 1)


# --- what is taken out ---


def raw(query: str = "", **headers: str) -> RawRequest:
    names = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return RawRequest(method="POST", path="/v1/messages", query=query, headers=names, body=b"")


@pytest.mark.parametrize(
    "request_",
    [
        raw(X_Api_Key=CANARY),
        raw(authorization=f"Bearer {CANARY}"),
        raw(x_goog_api_key=CANARY),
        raw(query=f"alt=sse&key={CANARY}"),
        raw(query=f"access_token={CANARY}"),
    ],
)
def test_the_login_that_a_request_brings_is_a_secret_of_its_exchange(request_: RawRequest):
    redactor = Scrubber(["other-secret"]).for_request(request_)
    assert redactor.text(f"I am {CANARY}, with other-secret") == "I am [redacted], with [redacted]"


def test_a_login_that_is_a_placeholder_is_not_taken_out_of_every_text():
    redactor = Scrubber().for_request(raw(x_api_key="test", authorization="Bearer [redacted]"))
    assert redactor.text("a test") == "a test"


def test_only_what_the_shape_of_an_answer_depends_on_is_kept_of_query_and_headers():
    assert clean_query(f"key={CANARY}&alt=sse&beta=true&x=1") == "alt=sse&beta=true"
    headers = {
        "Content-Type": "text/event-stream",
        "Retry-After": "3",
        "request-id": "req_1",
        "set-cookie": CANARY,
        "anthropic-organization-id": "org",
    }
    assert clean_headers(headers, Redactor()) == {"content-type": "text/event-stream", "retry-after": "3"}


def cut(data: bytes, *places: int) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(st.lists(st.integers(0, 90), max_size=4))
def test_a_secret_is_taken_out_wherever_the_answer_was_cut(places: list[int]):
    data = f'data: {{"text":"grüß {CANARY} dich"}}\n\ndata: {{"text":"ok"}}\n\n'.encode()
    chunks = clean_chunks(cut(data, *places), Redactor([CANARY]))
    assert "".join(map(str, chunks)) == 'data: {"text":"grüß [redacted] dich"}\n\ndata: {"text":"ok"}\n\n'


@given(st.text(max_size=40), st.lists(st.integers(0, 90), max_size=4))
def test_an_answer_without_secrets_is_kept_to_the_byte_and_so_are_its_cuts(text: str, places: list[int]):
    data = f"data: {json.dumps(text)}\n\n".encode()
    given_chunks = cut(data, *places)
    chunks = clean_chunks(given_chunks, Redactor([CANARY]))
    assert [str(chunk).encode() for chunk in chunks] == given_chunks


EVENTS = {
    "anthropic": lambda piece: {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": piece},
    },
    "anthropic arguments": lambda piece: {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": piece},
    },
    "responses": lambda piece: {"type": "response.output_text.delta", "output_index": 0, "delta": piece},
    "chat": lambda piece: {"choices": [{"index": 0, "delta": {"content": piece}}]},
    "chat arguments": lambda piece: {
        "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 2, "function": {"arguments": piece}}]}}]
    },
    "gemini": lambda piece: {"candidates": [{"content": {"parts": [{"text": piece}]}}]},
}


@pytest.mark.parametrize("kind", EVENTS)
@pytest.mark.parametrize("secret", [CANARY, "sk-proj-0123456789abcdefghij"])
def test_a_secret_that_a_model_says_in_pieces_is_taken_out_and_the_other_events_stay(kind: str, secret: str):
    pieces = ["Key: ", secret[:5], secret[5:15], f"{secret[15:]}, ", "bye"]
    frames = [f"data: {json.dumps(EVENTS[kind](piece))}\r\n\r\n".encode() for piece in pieces]
    chunks = [str(chunk) for chunk in clean_chunks(frames, Redactor([CANARY]))]
    said = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    assert said == [EVENTS[kind](piece) for piece in ("Key: ", "[redacted]", "", ", ", "bye")]
    assert [chunks[0].encode(), chunks[-1].encode()] == [frames[0], frames[-1]]


def test_texts_that_are_streamed_side_by_side_are_not_mixed_up():
    events = [
        {"type": "content_block_delta", "index": index, "delta": {"text": piece}}
        for index, piece in ((0, CANARY[:9]), (1, "no"), (0, CANARY[9:]), (1, "thing"))
    ]
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    (chunk,) = clean_chunks([data], Redactor([CANARY]))
    said = [json.loads(line[6:])["delta"]["text"] for line in str(chunk).split("\n\n")[:-1]]
    assert said == ["[redacted]", "no", "", "thing"]


def test_a_secret_over_the_elements_of_a_json_stream_is_taken_out():
    data = json.dumps([EVENTS["gemini"](piece) for piece in (CANARY[:9], CANARY[9:])]).encode()
    chunks = clean_chunks(cut(data, 30), Redactor([CANARY]))
    assert json.loads("".join(map(str, chunks))) == [EVENTS["gemini"](piece) for piece in ("[redacted]", "")]


def test_an_answer_that_is_not_text_is_kept_as_bytes_without_secrets():
    assert clean_chunks([b"\xff\xfe", b"\x00"], Redactor([CANARY])) == [b"\xff\xfe", b"\x00"]
    data = b"\xff" + CANARY.encode() + b" sk-proj-0123456789abcdefghij"
    assert clean_chunks(cut(data, 8), Redactor([CANARY])) == [b"\xff[redacted] [redacted]", b""]


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.data())
def test_pieces_are_edited_as_the_whole_would_be(pieces: list[str], data: st.DataObject):
    whole = "".join(pieces)
    places = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=6)))
    edits = [Edit(start, end, "#") for start, end in zip(places[::2], places[1::2], strict=False)]
    expected = whole
    for edit in reversed(edits):
        expected = expected[: edit.start] + "#" + expected[edit.end :]
    spliced = splice(pieces, edits)
    assert "".join(spliced) == expected
    assert len(spliced) == len(pieces)


# --- the nearest ---


def test_the_nearest_is_the_one_with_the_most_in_common():
    asked = flatten({"a": 1, "b": [1, 2], "c": {"d/e": "x~"}})
    assert asked == {"/a": 1, "/b/0": 1, "/b/1": 2, "/c/d~1e": "x~"}
    candidates = [flatten(value) for value in ({"a": 1}, {"a": 1, "b": [1, 3]}, {"a": 1, "b": [1, 3]}, {})]
    assert find_nearest(asked, candidates) == (1, 0.5)
    assert find_nearest(asked, []) is None


def test_differences_are_said_by_place_and_long_texts_are_cut_around_them():
    text = "The quick brown fox jumps over the lazy dog. " * 20
    recorded = flatten({"messages": [{"text": text + "old" + text}], "gone": {}, "same": 1})
    asked = flatten({"messages": [{"text": text + "new" + text}], "same": 1, "fresh": [True]})
    lines = describe_differences(recorded, asked)
    assert lines[0] == "/messages/0/text"
    assert "old" in lines[1]
    assert "new" in lines[2]
    assert all(len(line) < 120 for line in lines)
    assert lines[3:] == ["/fresh/0", "  - (nothing)", "  + true", "/gone", "  - {}", "  + (nothing)"]


def test_only_some_of_many_differences_are_said():
    lines = describe_differences(flatten(list(range(20))), flatten(list(range(1, 21))))
    assert len(lines) == 3 * MAX_DIFFERENCES + 1
    assert lines[-1] == "and 12 more"
