"""The pure parts of the chat, without a terminal."""

import asyncio
import logging
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from rich.text import Text
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.cli.chat import blocks as chat_blocks, complete
from codesdk.cli.chat.blocks import MAX_HELD_CHARS, MAX_HELD_LINES, Block, Blocks
from codesdk.cli.chat.complete import matching_files
from codesdk.cli.chat.history import KEPT_BYTES, MAX_BYTES, history_file
from codesdk.cli.chat.keys_in import PasteParser
from codesdk.cli.chat.logs import remarks
from codesdk.cli.chat.marks import MARK, theirs
from codesdk.cli.chat.message import mentioned, message_of
from codesdk.cli.chat.paint import Painter
from codesdk.cli.chat.pastes import Pastes
from codesdk.cli.chat.proposal import proposal_lines
from codesdk.cli.chat.tool_output import HEAD_LINES, TAIL_LINES, ToolOutput
from codesdk.cli.chat.waiting import CALM_S, Desk, Waiting, time_left
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactRef, Text as TextBlock
from codesdk.contract.records import ApprovalRow
from codesdk.contract.tools import Question

MARKDOWN = """# Title
Text that
goes on.

- one
- two

  of two
- three

1. first
2. second

| a | b |
|---|---|
| 1 | 2 |

```python
def f():

    return 1
```
After.
"""
PARTS = st.sampled_from(
    ["a", " ", "\n", "\n\n", "- x", "1. y", "```", "```py\n", "# h", "> q", "    z", "**b**", "|", "&#9612;"]
)
ANY = st.text(st.characters(exclude_categories=[]), max_size=200)
END = "\x1b[201~"
SGR = re.compile(r"\x1b\[[0-9;]*m")


def split(*pieces: str) -> list[Block]:
    blocks = Blocks()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    return found + blocks.end()


def test_markdown_is_split_where_a_block_ends():
    assert split(MARKDOWN) == [
        Block("# Title"),
        Block("Text that\ngoes on."),
        Block("- one"),
        Block("- two\n\n  of two", joins=True),
        Block("- three", joins=True),
        Block("1. first"),
        Block("2. second", joins=True),
        Block("| a | b |\n|---|---|\n| 1 | 2 |"),
        Block("```python\ndef f():\n\n    return 1\n```"),
        Block("After."),
    ]


@given(st.lists(PARTS, max_size=40), st.data())
def test_however_a_text_is_cut_into_pieces_the_blocks_are_the_same(parts: list[str], data: st.DataObject):
    text = "".join(parts)
    at = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]
    assert split(*pieces) == split(text)
    kept = [line for block in split(text) for line in block.text.split("\n") if line.strip()]
    assert kept == [line for line in text.split("\n") if line.strip()]


def test_long_code_is_handed_out_in_pieces_that_are_whole_fences():
    lines = [f"line {number}" for number in range(3 * MAX_HELD_LINES)]
    blocks = Blocks()
    found = blocks.feed("~~~sh\n" + "\n".join(lines) + "\n")
    assert len(found) == 3
    assert all(block.text.startswith("~~~sh\n") and block.text.endswith("\n~~~") for block in found)
    assert [block.joins for block in found] == [False, True, True]
    shown = "".join(block.text for block in [*found, *blocks.end()])
    assert [line for line in lines if f"{line}\n" not in f"{shown}\n".replace("~~~", "\n")] == []


def test_a_paragraph_of_many_lines_is_held_in_linear_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat_blocks, "MAX_HELD_CHARS", 1_000_000)
    with hang_guard():
        found = split("a\n" * 250_000)
    assert [len(block.text) for block in found] == [2 * 250_000 - 1]


def test_long_text_is_handed_out_in_pieces_of_the_most_that_is_held():
    line = "a" * (MAX_HELD_CHARS // 4)
    found = split(f"{line}\n" * 10)
    assert [len(block.text.split("\n")) for block in found] == [5, 5]
    assert [block.joins for block in found] == [False, True]


@given(ANY, st.integers(1, 130))
def test_no_text_of_others_leaves_its_place(text: str, width: int):
    painter = Painter(width)
    painted = [*painter.markdown(Block(text)), *painter.others(text), *painter.others([Text(text)])]
    for line in painted:
        plain = SGR.sub("", line)
        assert plain == "" or plain.startswith("  "), "the first column is ours"
        assert MARK not in plain
        assert "\x1b" not in plain
        assert theirs(plain) == plain


@given(ANY)
def test_every_line_of_ours_begins_with_the_mark_and_has_no_other(text: str):
    for line in [*Painter(40).ours(text), *Painter(40).ours(text, one=True)]:
        plain = SGR.sub("", line)
        assert plain.startswith(MARK)
        assert MARK not in plain[1:]
        assert "\x1b" not in plain


def test_a_file_or_a_dumb_terminal_gets_no_escape_sequence():
    painter = Painter(40, styled=False)
    lines = [*painter.markdown(Block("**bold** `code`")), *painter.ours("note", "red")]
    assert lines == ["", "  bold code", "▌ note"]


def row(approval_id: str, **fields: object) -> ApprovalRow:
    values = {
        "session_id": "s",
        "state": "waiting",
        "kind": "tool",
        "summary": "x",
        "requested_at": "",
        "tool_call_id": "c",
    }
    return ApprovalRow(approval_id=approval_id, **values | fields)  # type: ignore[arg-type]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_key_answers_only_what_was_there_long_enough_to_be_read():
    clock = Clock()
    desk = Desk(clock)
    assert not desk.takes_keys("")
    desk.settle([row("a"), row("b")])
    assert not desk.takes_keys(""), "it has just appeared"
    clock.now += CALM_S
    assert desk.takes_keys("")
    assert not desk.takes_keys("typed")
    desk.pressed()
    assert not desk.takes_keys(""), "somebody types"
    clock.now += CALM_S
    first = desk.front
    assert first is not None
    desk.hold(first)
    assert desk.front != first
    assert not desk.takes_keys(""), "another one came to the front"
    clock.now += CALM_S
    desk.release(first)
    assert desk.front == first
    desk.settle([])
    assert desk.front is None


def test_a_line_answers_a_question_only_if_it_was_begun_after_that():
    clock = Clock()
    desk = Desk(clock)
    desk.settle([row("q", kind="question", text="Which?")])
    clock.now += CALM_S
    assert not desk.takes_line("a message")
    assert not desk.takes_line("a message, still")
    assert desk.takes_line("")
    assert desk.takes_line("the answer")
    assert not desk.takes_keys("")
    desk.settle([])
    assert not desk.takes_line("")


def test_a_budget_has_nothing_to_show_and_no_tool_to_approve_for_good():
    desk = Desk(Clock())
    desk.settle([row("b", kind="budget", tool_call_id=None)])
    assert [key for key, _ in desk.choices()] == ["y", "n", "r"]
    assert (desk.verb("y"), desk.verb("a"), desk.verb("z")) == ("approve", None, None)


def test_the_time_that_is_left():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    one = Waiting("a", "tool", "x", expires_at=(now + timedelta(seconds=125)).isoformat())
    assert time_left(one, now) == "2:05 left"
    assert time_left(one, now + timedelta(hours=1)) == "0:00 left"
    assert (
        time_left(Waiting("a", "question", "x", question=Question(text="?")), now)
        == "waits as long as it takes"
    )


@pytest.mark.parametrize(
    ("given_input", "lines"),
    [
        ({"path": "a", "old": "x\ny", "new": "z"}, ["- x", "- y", "+ z"]),
        ({"path": "a", "old_text": "x", "new_text": ""}, ["- x", "+ "]),
        ({"path": "a", "content": "x\n"}, ["+ x"]),
        ({"argv": ["echo", "a b"], "cwd": "sub"}, ["$ echo 'a b'", "in sub"]),
        ({"command": "a\nb"}, ["$ a", "  b"]),
        ({"patch": "--- a/x\n+++ b/x\n"}, ["  --- a/x", "  +++ b/x"]),
        ({"other": 1}, ["    {", '      "other": 1', "    }"]),
        (None, []),
    ],
)
def test_what_a_call_would_do(given_input: object, lines: list[str]):
    assert [text.plain for text in proposal_lines(given_input)] == lines


def test_of_much_output_the_beginning_and_the_end_are_shown():
    output = ToolOutput()
    shown = output.feed("stdout", "".join(f"{number}\n" for number in range(1000)) + "rest")
    assert [text.plain for text in shown] == [str(number) for number in range(HEAD_LINES)]
    more, skipped = output.end()
    assert (more, skipped) == ([], 1001 - HEAD_LINES - TAIL_LINES)
    assert [text.plain for text in output.tail] == ["996", "997", "998", "999", "rest"]


def test_pastes_are_signs_when_they_are_long_and_clean_always(tmp_path: Path):
    pastes = Pastes()
    assert pastes.take("a\r\nb") == ("a\nb", "")
    assert pastes.take("a\x1bb\udcffc").text == "abc"
    assert "2 control characters" in pastes.take("a\x1bb\udcffc").remark
    sign = pastes.take("x" * 3000).text
    assert sign == "[paste 1: 3,000 characters]"
    assert pastes.whole(f"see {sign}") == "see " + "x" * 3000
    with pytest.raises(InvalidRequest, match="another chat"):
        pastes.whole("[paste 2: 3,000 characters]")
    file = tmp_path / "a b.png"
    file.write_bytes(b"")
    assert pastes.take(f"'{file}'").text == f'@"{file}" '


def test_files_that_are_mentioned_and_completed(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("notes.md", "sub/more notes.md", ".git/notes", "sub/x\x1b.md"):
        (tmp_path / name).write_text("")
    assert mentioned('see @notes.md, @"sub/more notes.md" and me@notes.md @nothing', tmp_path) == [
        tmp_path / "notes.md",
        tmp_path / "sub/more notes.md",
    ]
    assert matching_files(tmp_path, "NOTES") == ["notes.md", "sub/more notes.md"]
    assert matching_files(tmp_path, "") == ["notes.md", "sub/more notes.md"]
    assert f"{tmp_path}/notes.md" in matching_files(tmp_path, f"{tmp_path}/no")


async def _attach(typed: str, root: Path) -> str:
    async def upload(data: bytes, kind: str, name: str) -> ArtifactRef:
        raise AssertionError("no image here")

    message = await message_of(typed, root, upload)
    return "".join(block.text for block in message.content[1:] if isinstance(block, TextBlock))


@pytest.mark.parametrize("typed", ["@notes.md", "@folder/id", '@"{root}/notes.md"', "@sub/../../key/id"])
async def test_a_link_in_the_workspace_attaches_nothing_of_elsewhere(tmp_path: Path, typed: str):
    root = tmp_path / "workspace"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "id").write_text("private")
    (root / "notes.md").symlink_to(tmp_path / "key" / "id")
    (root / "folder").symlink_to(tmp_path / "key")
    with pytest.raises(InvalidRequest, match=r"cannot be attached: .* write its whole path"):
        await _attach(typed.format(root=root), root)
    assert matching_files(root, "") == []
    assert "private" in await _attach(f"@{tmp_path}/key/id", root)


async def test_a_file_of_the_workspace_is_attached_as_text(tmp_path: Path):
    (tmp_path / "notes.md").write_text("words")
    assert await _attach("see @notes.md", tmp_path) == '\n<file path="notes.md">\nwords\n</file>\n'


def test_a_workspace_of_folders_alone_does_not_hold_up_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in range(30):
        (tmp_path / f"{number:02}" / "x").mkdir(parents=True)
    looked: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda place: looked.append(place) or scandir(place))
    monkeypatch.setattr(complete, "MAX_VISITED", 35)
    assert matching_files(tmp_path, "") == []
    assert len(looked) == 12  # the top with thirty, five with one in each, and the one that was one too many


def test_the_history_is_cut_at_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history_file()
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    entry = b"\n# 2026-01-01 00:00:00\n+" + b"x" * 1000 + b"\n"
    path.write_bytes(entry * (MAX_BYTES // len(entry) + 2))
    assert history_file() == path
    kept = path.read_bytes()
    assert kept.startswith(b"\n# 2026")
    assert kept.endswith(entry)
    assert len(kept) <= KEPT_BYTES + 10


async def test_warnings_of_libraries_are_said_and_not_written_beside():
    said: list[str] = []
    with remarks(said.append):
        await asyncio.to_thread(logging.getLogger("some.library").warning, "It is %s.", "late")
        logging.getLogger("some.library").info("nobody asked")
        await asyncio.sleep(0)
    logging.getLogger("some.library").warning("after the end")
    await asyncio.sleep(0)
    assert said == ["some.library: It is late."]


@given(st.text("ab\x1b[201~", max_size=60), st.data())
def test_a_paste_is_the_same_however_it_arrives(text: str, data: st.DataObject):
    typed = f"x\x1b[200~{text.replace(END, '')}{END}y"
    at = sorted(data.draw(st.lists(st.integers(0, len(typed)), max_size=8)))
    keys: list[KeyPress] = []
    parser = PasteParser(keys.append)
    for start, end in zip([0, *at], [*at, len(typed)], strict=True):
        parser.feed(typed[start:end])
    pasted = typed[len("x\x1b[200~") :].partition(END)[0]
    assert [key.data for key in keys if key.key == Keys.BracketedPaste] == [pasted]
    assert keys[-1].data == "y"
