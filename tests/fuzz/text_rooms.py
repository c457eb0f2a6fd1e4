"""What reads long texts of others by search and expression: errors that quote, files, requests to compare, marks."""

import contextlib
import json

import msgspec
import pytest

from codesdk.contract import actions as act
from codesdk.contract.models import OwnTexts
from codesdk.contract.ownership import mark_for
from codesdk.contract.validation import MAX_WORDS_CHARS, explain
from codesdk.engine.tasks.marks import Marks, Unmarked
from codesdk.gateway.capture.sources import account
from codesdk.gateway.cassettes.volatile import normalize
from codesdk.gateway.cassettes.volatile_rules import RULES
from codesdk.gateway.wires.formats import codec_for
from codesdk.tools import explain as explain_input

_MARKS = [mark_for(f"call_01jqe8p1v0000000000000000{letter}") for letter in "ab"]


def names() -> list[bytes]:
    """Return names that an error quotes."""
    return [b"x", b"x - at `$.y`", b" - at `key` in `$`", "`é` - at `$`".encode()]


def quoted(data: bytes) -> None:
    """A name that nobody knows is told, as far as there is room for it."""
    name = data.decode("utf-8", "replace")
    for body in ({name: 1}, {"settings": {name: 1}}, {"settings": {"permission_mode": name}}):
        with pytest.raises(msgspec.ValidationError) as raised:
            msgspec.convert(body, act.CreateSession)
        assert len(explain(raised.value, act.CreateSession)) < 2 * MAX_WORDS_CHARS
        explain_input("t", {}, str(raised.value))


def files() -> list[bytes]:
    """Return instruction files."""
    return [
        b"---\nname: n\ndescription: >\n  says what\n---\n\n# Rules\n<!-- not\nshown -->\nBe kind.\n",
        b"---\r\ndescription: a\r\n---\r\nBe brief.",
        b"Be kind.",
    ]


def compared(data: bytes) -> None:
    """A file is looked for in a request that quotes it, cut and whole."""
    text = data.decode("utf-8", "replace")
    body = {
        "model": "m",
        "max_tokens": 1,
        "system": f"Contents of w/AGENTS.md:\n{text}",
        "messages": [{"role": "user", "content": f"w: {text[: len(text) // 2]}"}],
    }
    codec = codec_for("anthropic")
    route = codec.route("POST", "/v1/messages", "")
    assert route is not None
    ask = codec.parse(route, body)
    stretches = account(ask, OwnTexts(messages=["Be kind."]), {"w/AGENTS.md": data, "w/b/SKILL.md": data})
    assert sum(len(each.text) for each in stretches) == len(body["system"]) + len(
        body["messages"][0]["content"]
    )


def volatile() -> list[bytes]:
    """Return requests with everything that changes from run to run."""
    texts = [rule.before for rule in RULES]
    cwd = "Working directory: /w/a\n<cwd> /w/b </cwd> in /w/a/x and ~/.claude/projects/-w-a/x"
    return [json.dumps({"model": "m", "system": text}).encode() for text in (*texts, cwd, "\n".join(texts))]


def normalized(data: bytes) -> None:
    """What is normal stays as it is."""
    with contextlib.suppress(ValueError, RecursionError):
        body = msgspec.json.decode(data, type=dict)
        normalize(body)


def marked() -> list[bytes]:
    """Return texts with marks, in each other and alone."""
    one, other = _MARKS
    return [f"a{one}b".encode(), f"{one[:20]}{other}{one[20:]}".encode(), f"[{one}]x[{other[:-1]}".encode()]


def stripped(data: bytes) -> None:
    """No mark is left, and a stream gives the same."""
    text, marks = data.decode("utf-8", "replace"), Marks()
    for mark in _MARKS:
        marks.add(mark)
    whole = marks.strip(text)
    assert not any(mark in whole for mark in _MARKS)
    assert marks.strip(whole) is whole
    stream, size = Unmarked(marks), 7 + len(text) // 64
    pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert len("".join([*pieces, stream.flush()])) >= len(whole)
