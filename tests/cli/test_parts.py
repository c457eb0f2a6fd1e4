"""The parts that only turn one thing into another."""

import io
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot
from tests.contract.examples import EVENTS

from codesdk.cli.view import pieces
from codesdk.cli.view.flow import Flow
from codesdk.cli.view.gist import brief, duration, gist, money, size
from codesdk.cli.view.live import LiveView
from codesdk.cli.view.pieces import step_lines
from codesdk.cli.view.safe import is_text, one_line, printable
from codesdk.cli.view.screen import Screen
from codesdk.cli.view.tables import EventLines, ago, fit, print_message, session_state
from codesdk.contract import events as ev
from codesdk.contract.codec import encode
from codesdk.contract.messages import ArtifactBlock, Code, Message, Text
from codesdk.contract.records import SessionRow, SessionStatus
from codesdk.contract.service import Published

CONTROLS = {chr(code) for code in [*range(32), *range(0x7F, 0xA0), 0x200E, 0x202E, 0x2066]} - {"\n", "\t"}


@pytest.mark.slow
@given(st.text())
def test_nothing_that_steers_a_terminal_is_printable(text: str):
    shown = printable(text)
    assert not set(shown) & CONTROLS
    shown.encode()


def test_printable_text_stays_as_it_is():
    text = "Grüße, 世界 👩‍👩‍👧 \t tab\nline"
    assert printable(text) == text
    assert printable("\x1b[31m\r\nx\ry\x00\x7f\x9b\ud800") == "␛[31m\nx␍y␀␡\ufffd\ufffd"


@given(st.text(), st.integers(1, 50))
def test_one_line_is_one_line_of_at_most_the_limit(text: str, limit: int):
    shown = one_line(text, limit)
    assert "\n" not in shown
    assert len(shown) <= limit


def test_text_is_told_from_bytes():
    assert is_text("Grüße".encode())
    assert not is_text(b"a\0b")
    assert not is_text(b"\xff")


def flowed(chunks: list[str], width: int | None, indent: str = "") -> str:
    flow = Flow(lambda: width, indent)
    return "".join(flow.feed(chunk) for chunk in chunks) + flow.end()


@given(st.lists(st.text("ab \n", max_size=12)), st.integers(4, 20))
def test_the_same_text_flows_the_same_in_any_pieces(chunks: list[str], width: int):
    assert flowed(chunks, width) == flowed(["".join(chunks)], width)
    assert flowed(chunks, width).split() == "".join(chunks).split()


def test_lines_are_broken_between_words_and_indentation_is_kept():
    assert flowed(["one two three"], 8) == "one two\nthree\n"
    assert flowed(["a\n    b\n\nc"], 80) == "a\n    b\n\nc\n"
    assert flowed(["one two"], 5, "  ") == "  one\n  two\n"
    assert flowed(["漢字漢字"], 4) == "漢字\n漢字\n"
    assert flowed(["long " * 50], None) == ("long " * 50).rstrip() + "\n"
    assert flowed([""], 80) == ""


def test_something_endless_is_not_held_back():
    assert Flow(lambda: 80).feed("x" * 200).count("x") == 160


@pytest.mark.parametrize("name", list(EVENTS))
def test_every_kind_of_event_has_a_gist_of_one_line(name: str):
    line = gist(EVENTS[name], 80)
    assert line
    assert "\n" not in line
    assert len(line) <= 80
    assert not line.startswith("{")


def test_an_event_of_an_unknown_type_shows_its_payload():
    known = EVENTS["task.completed"]
    strange = ev.UnknownEvent(
        schema_version=9,
        seq=1,
        time=known.time,
        type="moon.landed",  # pyright: ignore[reportArgumentType]
        trace=known.trace,
        runtime=known.runtime,
        payload={"where": "here", "crew": [1, 2]},
    )
    assert gist(strange) == "where=here crew=[1,2]"
    day, line = ("".join(text for text, _ in parts) for parts in EventLines(60).of(strange))
    assert (len(day), "moon.landed" in line) == (10, True)


def test_inputs_are_told_in_brief():
    assert brief({"path": "a.txt"}) == "a.txt"
    assert brief({"path": "a.txt", "old": "x", "new": "y"}) == "a.txt"
    assert brief({"path": "a.txt", "limit": 3}) == "path=a.txt limit=3"
    assert brief([1, 2]) == "[1,2]"
    assert brief({}) == ""
    assert brief("x" * 500, 10) == "xxxxxxxxx…"


def test_amounts_are_told_for_people():
    assert [duration(ms) for ms in (3, 1200, 61_000, 3_700_000)] == [
        "3 ms",
        "1.2 s",
        "1 min 1 s",
        "1 h 1 min",
    ]
    assert [size(n) for n in (5, 1500, 2_000_000, 5_000_000_000_000)] == [
        "5 B",
        "1.5 kB",
        "2.0 MB",
        "5000.0 GB",
    ]
    assert [money(usd) for usd in (0.0005, 0.25, 12.5)] == ["$0.0005", "$0.2500", "$12.50"]
    now = datetime(2026, 1, 2, tzinfo=UTC)
    stamps = [now - timedelta(seconds=s) for s in (5, 300, 7300)]
    assert [ago(stamp.isoformat(), now) for stamp in stamps] == ["just now", "5 min ago", "2 h ago"]
    assert ago((now - timedelta(days=9)).isoformat(), now).startswith("2025-12-2")


@given(st.text("aß漢 ", max_size=40), st.integers(2, 30))
def test_a_cut_line_fits(text: str, cells: int):
    from rich.cells import cell_len

    assert cell_len(fit(text, cells)) <= cells


def row(status: SessionStatus = "open", active_task_id: str | None = None, queued: int = 0) -> SessionRow:
    return SessionRow(
        session_id="ses_x",
        principal="local",
        status=status,
        runtime="scripted",
        workspace="/w",
        permission_mode="ask",
        created_at="2026-01-01T00:00:00.000Z",
        updated_at="2026-01-01T00:00:00.000Z",
        active_task_id=active_task_id,
        queued=queued,
    )


def test_a_session_says_what_it_is_doing():
    running = row(active_task_id="task_x", queued=2)
    assert session_state(running, 0, owned=True) == "running, 2 queued"
    assert session_state(running, 0, owned=False) == "interrupted"
    assert session_state(running, 2, owned=True) == "waits for 2 answers"
    assert session_state(row(), 0, owned=True) == "open"
    assert session_state(row(status="closed"), 0, owned=True) == "closed"


def test_a_long_diff_and_a_long_result_are_cut_with_a_count():
    lines = pieces.diff_lines("\n".join(f"+{n}" for n in range(100)) + "\n")
    assert (len(lines), lines[-1].plain) == (41, "  … 60 more lines")
    shown = [line.plain for line in pieces.result_lines("a\nb\nc\nd\ne\nf\n", is_error=False)]
    assert shown == ["  a", "  b", "  c", "  d", "  … 2 more lines"]
    assert [line.plain for line in pieces.result_lines({"a": 1}, is_error=True)] == ['  {"a":1}']
    assert pieces.replacement_lines({"path": "x"}) == []
    assert pieces.replacement_lines({"old": "a\n" * 20, "new": "b"})[-1].plain == "    … 9 more lines"


def test_next_steps_stand_beside_their_purpose_or_under_it():
    steps = [("codesdk a", "first"), ("codesdk bcd", "second")]
    assert [line.plain for line in step_lines(steps, 80)] == [
        "  codesdk a     first",
        "  codesdk bcd   second",
    ]
    assert [line.plain for line in step_lines(steps, 15)][:2] == ["  first", "    codesdk a"]


def test_a_message_with_all_kinds_of_blocks_can_be_printed(monkeypatch):
    out = io.StringIO()
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", out)
    screen = Screen()
    blocks = [Text(text="Hi\x1b"), Code(code="x = 1", language="python"), ArtifactBlock(artifact_id="art_1")]
    print_message(screen.console, Message(role="user", content=blocks))
    import asyncio

    asyncio.run(screen.send())
    assert out.getvalue() == "user\n  Hi␛\n  x = 1\n  art_1 (art_1)\n\n"


async def test_a_view_shows_each_kind_of_event(monkeypatch):
    out = io.StringIO()
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", out)

    async def load(artifact_id: str) -> bytes:
        return b"+a\n-b\n"

    view = LiveView(Screen(), load, " --data-dir d")
    for event in EVENTS.values():
        await view.show([Published(event.seq, encode(event), event)])
    await view.remark("that was all")
    assert out.getvalue() == snapshot("""\
Greeting · claude-agent-sdk · auto · /srv/shop

Let me

· the text above was taken back: The stream broke; the runtime sends the message again.

● workspace.read  hello.txt

I should look at the file first.

Let me read it.

● workspace.edit
  ? waits for an answer: codesdk --data-dir d approve eqtkf319 eqtkf319
  ✓ approved by user ada
  1 of 1 files
  Edited hello.txt at line 1.
  +a
  -b

· steered: Keep the comma.

✓ completed · 1,840 tokens in, 96 out · $0.0042 · 24.0 s

· compaction: The runtime summarized the conversation so far.

■ stopped · French is not needed after all. · 410 tokens in, 7 out · $0.0008 · 45.3 s

● workspace.edit
  ✗ denied by engine: The process ended before anyone answered; the question is kept for a resume.

✗ failed · INTERRUPTED: The process ended while this task ran. Resume the session to continue. · 905 tokens in, 31 out · $0.0019 · 10.0 s

· session.settings_changed title=Greeting and scale permission_mode=ask values={"ticket":12} by user ada
· grant.revoked workspace.edit by user ada
· session.compacted summary, about 1,240 tokens to 310, from message 4 on, by user ada: Somebody asked for it.
· transcript.supplemented review by extension reviewer: The greeting is right; the scale was not changed.
· suggest_request.answered sug_01kf0g78913wz4tm72eqtkf319: reviewer {"message":"Scale the deployment to three."}
· that was all
""")
