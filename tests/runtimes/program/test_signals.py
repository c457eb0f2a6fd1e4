"""What a program sends that nobody knows is noted within bounds, whichever program it is."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from codesdk.contract.events import RuntimeNotice
from codesdk.contract.runtime import Draft
from codesdk.runtimes.acp.normalize import normalize as of_acp
from codesdk.runtimes.acp.row import Reading
from codesdk.runtimes.acp.state import State as AcpState
from codesdk.runtimes.claude.normalize import ClaudeState, normalize as of_claude
from codesdk.runtimes.codex.normalize import normalize as of_codex
from codesdk.runtimes.codex.state import State as CodexState
from codesdk.runtimes.opencode.normalize import normalize as of_opencode
from codesdk.runtimes.opencode.state import State as OpencodeState
from codesdk.runtimes.program.signals import MAX_BYTES, MAX_OF_ALL, MAX_OF_ONE, Signals

MEGABYTE = "x" * 1_000_000
Say = Callable[[str, str], list[Any]]


def acp() -> Say:
    state = AcpState(runtime="acp:x", session_id="s", task_id="t", tools={}, reading=Reading())
    return lambda name, more: of_acp(
        state, {"method": "session/update", "params": {"update": {"sessionUpdate": name, "more": more}}}
    )


def claude() -> Say:
    state = ClaudeState({})
    return lambda name, more: of_claude(state, {"type": name, "more": more})


def codex() -> Say:
    state = CodexState(turn_id="t", model="m", tools={})
    return lambda name, more: of_codex(state, {"method": name, "params": {"more": more}})


def opencode() -> Say:
    state = OpencodeState(session_id="s", model="m", tools={})
    return lambda name, more: of_opencode(state, {"type": name, "properties": {"more": more}})


PROGRAMS = [acp, claude, codex, opencode]


def taken(items: list[Any]) -> list[Draft]:
    assert all(isinstance(item, Draft) and isinstance(item.payload, RuntimeNotice) for item in items)
    assert {item.payload.kind for item in items} == {"unknown_frame"}
    return items


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_unknown_frame_again_and_again_is_noted_a_few_times(program: Callable[[], Say]):
    say = program()
    noted = taken([item for _ in range(500) for item in say("dreams", "")])
    assert len(noted) == MAX_OF_ONE
    assert [item.payload.details.get("last") for item in noted][-2:] == [None, True]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("program", PROGRAMS)
def test_many_unknown_frames_are_noted_up_to_a_number(program: Callable[[], Say]):
    say = program()
    assert len(taken([item for n in range(500) for item in say(f"dream {n}", "")])) == MAX_OF_ALL


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unknown_frame_of_any_size_is_noted_by_its_beginning(program: Callable[[], Say]):
    for name, more in (("dreams", MEGABYTE), (MEGABYTE, "")):
        (noted,) = taken(program()(name, more))
        assert len(msgspec.json.encode([noted.payload, noted.raw])) < MAX_BYTES


def test_lines_that_are_no_messages_are_noted_a_few_times_and_by_their_beginning():
    signals = Signals("x")
    noted = [draft for _ in range(500) for draft in signals.garbage(len(MEGABYTE), MEGABYTE)]
    assert len(noted) == MAX_OF_ONE
    first: Any = noted[0].payload
    assert (first.kind, first.message, first.details) == (
        "unknown_frame",
        "x wrote a line that is not a message.",
        {"size": 1_000_000},
    )
    assert len(str(noted[0].raw)) < MAX_BYTES


def test_what_json_cannot_say_is_noted_all_the_same():
    (noted,) = Signals("x").unknown("a dream", {"number": 10**400, "half": "\ud800"})
    assert noted.raw is not None
