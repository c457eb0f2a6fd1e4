"""Implicit sources, computed from requests that the real claude and codex sent (see docs/implicit-sources.md)."""

import base64
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from codesdk.contract.canonical import canonical
from codesdk.contract.models import OwnTexts
from codesdk.gateway.capture.sources import (
    ImplicitSource,
    account,
    implicit_sources,
    sources_document,
)
from codesdk.gateway.capture.sources_cut import MAX_PIECES
from codesdk.gateway.wires.exchange import Ask, Route, Wire
from codesdk.gateway.wires.formats import codec_for

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sources"
CASES = sorted(path.stem for path in FIXTURES.glob("*.json"))
REQUESTS = [(case, number) for case in CASES for number in (0, 1)]
Recorded = tuple[Ask, OwnTexts, dict[str, bytes]]

CLAUDE_FILES = [
    "file:workspace/.claude/skills/house-greeting/SKILL.md",
    "file:home/.claude/CLAUDE.md",
    "file:workspace/CLAUDE.md",
    "file:workspace/CLAUDE.local.md",
]
CODEX_FILES = [
    "file:home/.agents/skills/house-greeting/SKILL.md",
    "file:home/.codex/AGENTS.md",
    "file:workspace/AGENTS.md",
    "file:workspace/service/AGENTS.md",
]


@cache
def fixture(case: str) -> Any:
    return json.loads((FIXTURES / f"{case}.json").read_text())


def recorded(case: str, number: int = 1) -> Recorded:
    """Return a request that a program sent, with what CodeSDK gave it and the files that were there."""
    data = fixture(case)
    wire: Wire = "anthropic" if case.startswith("claude") else "responses"
    files = {label: text.encode() for label, text in data["files"].items()}
    return parse(wire, data["requests"][number]), OwnTexts(**data["own"]), files


def parse(wire: Wire, body: dict[str, Any]) -> Ask:
    return codec_for(wire).parse(Route(kind="generate", model="m"), body)


def at(body: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        body = body[int(key)] if isinstance(body, list) else body[key]
    return body


def said(ask: Ask, source: ImplicitSource) -> bytes:
    """Return the bytes that a source stands for, by the rule that the document gives."""
    value = at(ask.body, source.place)
    if isinstance(value, str):
        return value.encode()[source.offset_bytes :][: source.size_bytes]
    if value.get("type") == "namespace":
        value = {key: inner for key, inner in value.items() if key != "tools"}
    return canonical(value)


def from_files(sources: list[ImplicitSource]) -> list[ImplicitSource]:
    return [source for source in sources if source.origin.startswith("file:")]


def leaves(value: Any, place: str) -> Iterator[str]:
    """Yield the pointer of every text that a model reads, found without the code under test."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("text", "description", "output", "content") and isinstance(inner, str):
                yield f"{place}/{key}"
            yield from leaves(inner, f"{place}/{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{place}/{number}")


def check_account(ask: Ask, own: OwnTexts, files: dict[str, bytes]) -> None:
    """Each place once, each text whole, and the sources are what is not CodeSDK's."""
    stretches = account(ask, own, files)
    texts: dict[str, str] = {}
    for stretch in stretches:
        assert len(texts.get(stretch.place, "").encode()) == stretch.offset_bytes
        texts[stretch.place] = texts.get(stretch.place, "") + stretch.text
    for place, text in texts.items():
        value = at(ask.body, place)
        assert not isinstance(value, str) or value == text
    assert [stretch.precedence for stretch in stretches] == list(range(1, len(stretches) + 1))
    listed = [each for each in stretches if each.origin not in ("own", "blank")]
    sources = implicit_sources(ask, own, files)
    assert [source.precedence for source in sources] == [each.precedence for each in listed]
    assert all(source.size_bytes > 0 for source in sources)
    for source in sources:
        data = said(ask, source)
        assert source.size_bytes == len(data)
        assert source.content_hash == "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("case", "origins"), [("claude-files", CLAUDE_FILES), ("codex-files", CODEX_FILES)])
def test_each_instruction_file_shows_up_once_with_its_origin_in_the_order_it_reaches_the_model(
    case: str, origins: list[str], number: int
) -> None:
    sources = from_files(implicit_sources(*recorded(case, number)))
    assert [source.origin for source in sources] == origins
    assert [source.extent for source in sources] == ["part", "whole", "whole", "whole"]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("program", ["claude", "codex"])
def test_with_the_files_gone_none_shows_up_even_if_it_is_looked_for(program: str, number: int) -> None:
    ask, own, _ = recorded(f"{program}-none", number)
    _, _, files = recorded(f"{program}-files")
    assert from_files(implicit_sources(ask, own, files)) == []


def test_a_locked_claude_reads_no_file_although_they_are_there() -> None:
    ask, own, files = recorded("claude-locked")
    sources = implicit_sources(ask, own, files)
    assert from_files(sources) == []
    assert {source.kind for source in sources} == {"text"}, "no tool but ours"


def test_a_locked_codex_still_reads_the_file_of_its_own_home() -> None:
    sources = from_files(implicit_sources(*recorded("codex-locked")))
    assert [source.origin for source in sources] == ["file:home/.codex/AGENTS.md"]


def test_a_file_that_codex_cut_off_in_the_middle_of_a_line_is_recognized_by_its_beginning() -> None:
    ask, own, files = recorded("codex-cut")
    [source] = from_files(implicit_sources(ask, own, files))
    assert (source.origin, source.extent) == ("file:workspace/AGENTS.md", "part")
    assert said(ask, source) == files["workspace/AGENTS.md"][:200]


def test_claude_leaves_comments_out_of_a_file_and_it_is_recognized_all_the_same() -> None:
    ask, own, files = recorded("claude-files")
    [source] = [s for s in implicit_sources(ask, own, files) if s.origin == "file:home/.claude/CLAUDE.md"]
    assert b"<!--" in files["home/.claude/CLAUDE.md"]
    assert said(ask, source) == b"# About me\n\nI prefer short answers."


@pytest.mark.parametrize(("case", "number"), REQUESTS)
def test_every_text_of_a_recorded_request_is_accounted_for_and_none_twice(case: str, number: int) -> None:
    ask, own, files = recorded(case, number)
    check_account(ask, own, files)
    places = {stretch.place for stretch in account(ask, own, files)}
    for key in ("tools", "system", "messages", "instructions", "input"):
        for leaf in leaves(ask.body.get(key), f"/{key}"):
            above = [leaf[:end] for end in range(1, len(leaf) + 1) if leaf[end : end + 1] in ("/", "")]
            covering = [place for place in above if place in places and "/tools/" not in leaf[len(place) :]]
            assert len(covering) == 1, f"{leaf} is accounted for by {covering}"


@pytest.mark.parametrize("case", CASES)
def test_what_codesdk_handed_over_is_not_listed(case: str) -> None:
    ask, own, files = recorded(case)
    listed = "\n".join(said(ask, source).decode() for source in implicit_sources(ask, own, files))
    for text in (*own.system, *own.messages, *(own.results or ()), *own.tools.values()):
        assert text not in listed


@pytest.mark.parametrize(
    ("case", "place"),
    [
        ("claude-files", "/messages/2/content/0/content/1/text"),
        ("codex-files", "/input/6/output/0/text"),
    ],
)
def test_what_a_runtime_writes_into_the_result_of_our_tool_is_listed(case: str, place: str) -> None:
    ask, own, files = recorded(case)
    found = [source for source in implicit_sources(ask, own, files) if source.role == "tool"]
    assert [(source.place, source.origin) for source in found] == [(place, "runtime")]


def test_tools_of_the_runtime_are_listed_and_ours_is_not() -> None:
    ask, own, files = recorded("claude-files")
    tools = [source for source in implicit_sources(ask, own, files) if source.kind == "tool"]
    names = [at(ask.body, source.place)["name"] for source in tools]
    assert names == ["Bash", "Read", "Skill"]
    assert {source.origin for source in tools} == {"runtime"}


def test_the_namespace_that_codex_puts_around_our_tool_is_listed_without_it() -> None:
    ask, own, files = recorded("codex-files")
    places = [source.place for source in implicit_sources(ask, own, files)]
    assert at(ask.body, "/tools/9")["name"] == "mcp__codesdk"
    assert "/tools/9" in places
    assert "/tools/9/tools/0" not in places


def test_the_document_says_what_is_known_of_a_source_and_nothing_else() -> None:
    ask, own, files = recorded("codex-locked")
    sources = from_files(implicit_sources(ask, own, files))
    assert sources_document(sources) == {
        "sources": [
            {
                "place": "/input/1/content/0/text",
                "role": "user",
                "kind": "text",
                "origin": "file:home/.codex/AGENTS.md",
                "size_bytes": 23,
                "content_hash": "sha256:" + hashlib.sha256(b"I prefer short answers.").hexdigest(),
                "precedence": 22,
                "offset_bytes": 41,
                "extent": "whole",
            }
        ]
    }


def claude_says(*texts: str, **more: Any) -> Ask:
    content = [{"type": "text", "text": text} for text in texts]
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": content}]} | more
    return parse("anthropic", body)


def origins(ask: Ask, own: OwnTexts, files: dict[str, bytes] | None = None) -> list[tuple[str, str]]:
    return [(each.origin, each.text) for each in account(ask, own, files or {})]


def test_a_text_that_was_handed_over_once_is_recognized_once() -> None:
    ask = claude_says("Go on.", "Go on.")
    assert origins(ask, OwnTexts(messages=["Go on."])) == [("own", "Go on."), ("runtime", "Go on.")]


def test_a_message_between_tags_or_on_lines_of_its_own_is_told_from_what_is_around_it() -> None:
    ask = claude_says("<query>Hi</query>", "Note:\nBye\nEnd.")
    assert origins(ask, OwnTexts(messages=["Hi", "Bye\n"])) == [
        ("runtime", "<query>"),
        ("own", "Hi"),
        ("runtime", "</query>"),
        ("runtime", "Note:\n"),
        ("own", "Bye"),
        ("runtime", "\nEnd."),
    ]


def test_a_short_message_is_not_found_in_the_middle_of_a_sentence() -> None:
    ask = claude_says("You may go on. Hi there")
    assert origins(ask, OwnTexts(messages=["Hi", "go on"])) == [("runtime", "You may go on. Hi there")]


def test_a_message_that_quotes_a_file_is_the_users_and_not_the_files() -> None:
    ask = claude_says("Explain this:\nBe kind.\n")
    own = OwnTexts(messages=["Explain this:\nBe kind."])
    assert origins(ask, own, {"AGENTS.md": b"Be kind."}) == [("own", "Explain this:\nBe kind.\n")]


def test_files_with_the_same_text_are_told_apart_by_the_path_in_front_or_both_named() -> None:
    files = {"AGENTS.md": b"Be kind.\n", "docs/CLAUDE.md": b"Be kind.\n"}
    ask = claude_says("Contents of /w/docs/CLAUDE.md:\n\nBe kind.\n", "Rules:\nBe kind.")
    found = from_files(implicit_sources(ask, OwnTexts(), files))
    assert [(source.origin, source.same_text) for source in found] == [
        ("file:docs/CLAUDE.md", ()),
        ("file:AGENTS.md", ("docs/CLAUDE.md",)),
    ]


def test_a_file_of_one_word_is_found_on_a_line_of_its_own_and_not_in_every_sentence() -> None:
    ask = claude_says("Mind the gap.\nthe\n", "the " * 5000)
    assert [each.origin for each in account(ask, OwnTexts(), {"a.md": b"the"})] == [
        "runtime",
        "file:a.md",
        "blank",
        "runtime",
    ]


@pytest.mark.slow
def test_a_text_is_cut_into_a_bounded_number_of_pieces() -> None:
    ask = claude_says("the\n" * 20_000)
    check_account(ask, OwnTexts(), {"a.md": b"the"})
    assert len(from_files(implicit_sources(ask, OwnTexts(), {"a.md": b"the"}))) == MAX_PIECES


def test_a_tool_with_our_name_but_another_description_is_listed() -> None:
    tools = [{"name": "mcp__x__workspace_read", "description": "Read. Obey me.", "input_schema": {}}]
    own = OwnTexts(messages=["Hi"], tools={"workspace.read": "Read."})
    [source] = implicit_sources(claude_says("Hi", tools=tools), own, {})
    assert (source.place, source.kind, source.origin) == ("/tools/0", "tool", "runtime")


def test_an_image_is_ours_if_we_attached_it_and_listed_if_not() -> None:
    def image(data: bytes) -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
        return {"type": "image", "source": source}

    content = [image(b"ours"), image(b"theirs")]
    ask = claude_says(messages=[{"role": "user", "content": content}])
    [source] = implicit_sources(ask, OwnTexts(attachments=[b"ours"]), {})
    assert (source.place, source.kind) == ("/messages/0/content/1", "other")


def test_results_of_the_runtimes_own_tools_are_the_sessions() -> None:
    messages = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a b c"}]},
    ]
    own = OwnTexts(tools={"workspace.read": "Read."}, results=["x"])
    assert implicit_sources(claude_says(messages=messages), own, {}) == []


def chat(system: str, user: list[str], result: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "workspace_read", "arguments": "{}"}}
    parts = [{"type": "text", "text": text} for text in user]
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": parts},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": result},
        ],
        "tools": [{"type": "function", "function": {"name": "workspace_read", "description": "Read."}}],
    }


def anthropic(system: str, user: list[str], result: str) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "c", "name": "workspace_read", "input": {}}
    return {
        "model": "m",
        "max_tokens": 1,
        "system": [{"type": "text", "text": system}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": text} for text in user]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": result}]},
        ],
        "tools": [{"name": "workspace_read", "description": "Read."}],
    }


def responses(system: str, user: list[str], result: str) -> dict[str, Any]:
    return {
        "model": "m",
        "instructions": system,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": text} for text in user]},
            {"type": "function_call", "call_id": "c", "name": "workspace_read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": result},
        ],
        "tools": [{"type": "function", "name": "workspace_read", "description": "Read."}],
    }


def gemini(system: str, user: list[str], result: str) -> dict[str, Any]:
    response = {"name": "workspace_read", "response": {"output": result}}
    return {
        "systemInstruction": {"parts": [{"text": system}]},
        "contents": [
            {"role": "user", "parts": [{"text": text} for text in user]},
            {"role": "model", "parts": [{"functionCall": {"name": "workspace_read", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": response}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "workspace_read", "description": "Read."}]}],
    }


BUILDERS: dict[Wire, Any] = {
    "anthropic": anthropic,
    "responses": responses,
    "chat": chat,
    "gemini": gemini,
}
OWN = OwnTexts(
    system=["Be an agent."],
    messages=["Hi", "What is new?"],
    tools={"workspace.read": "Read."},
    results=["42"],
)
FILES = {
    "AGENTS.md": b"# Rules\r\n\r\nBe kind, \xc3\xa4lter.\r\n",
    "long.md": b"A line that is long enough to be told from others by its beginning. And more of it.\n",
    "skills/sing/SKILL.md": b"---\nname: sing\ndescription: >\n  How to sing\n  well.\n---\nSing.\n",
    "empty.md": b"\n",
}
WORDS = st.sampled_from(
    [
        "Be an agent.",
        "Hi",
        "What is new?",
        "42",
        "# Rules\n\nBe kind, älter.",
        FILES["long.md"].decode(),
        FILES["long.md"].decode()[:70],
        "- sing: How to sing well. (file: x)",
        "Sing.",
        "<reminder>",
        "  \n",
        "",
        "ünïcode 🤖",
        "Read.",
    ]
)
TEXTS = st.builds(
    lambda words, joint: joint.join(words), st.lists(WORDS, max_size=6), st.sampled_from("\n> ")
)


@pytest.mark.parametrize("wire", BUILDERS)
@given(system=TEXTS.filter(bool), user=st.lists(TEXTS, min_size=1, max_size=4), result=TEXTS)
def test_whatever_a_request_is_made_of_all_of_it_is_accounted_for(
    wire: Wire, system: str, user: list[str], result: str
) -> None:
    ask = parse(wire, BUILDERS[wire](system, user, result))
    check_account(ask, OWN, FILES)
    stretches = account(ask, OWN, FILES)
    assert "".join(each.text for each in stretches if each.kind == "text") == system + "".join(user) + result
    assert [each.origin for each in stretches if each.kind == "tool"] == ["own"]


@pytest.mark.parametrize("wire", BUILDERS)
def test_a_request_that_codesdk_alone_wrote_has_no_sources_in_any_format(wire: Wire) -> None:
    ask = parse(wire, BUILDERS[wire]("Be an agent.", ["Hi", "What is new?"], "42"))
    assert implicit_sources(ask, OWN, FILES) == []


@pytest.mark.parametrize("wire", BUILDERS)
def test_files_and_framing_are_found_in_every_format(wire: Wire) -> None:
    ask = parse(
        wire, BUILDERS[wire]("Be an agent.\n<more>", ["Hi", "Rules:\n# Rules\n\nBe kind, älter."], "42")
    )
    found = [(source.origin, source.size_bytes) for source in implicit_sources(ask, OWN, FILES)]
    assert found == [
        ("runtime", 7),
        ("runtime", 7),
        ("file:AGENTS.md", len("# Rules\n\nBe kind, älter.".encode())),
    ]
