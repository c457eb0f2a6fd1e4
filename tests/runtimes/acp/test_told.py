"""What an agent tells again of its session, and how many of the last messages it has by that."""

from typing import Any

import pytest

from codesdk.runtimes.acp import told as told_module
from codesdk.runtimes.acp.told import Told
from codesdk.runtimes.program.unanswered import Sent

IMAGE = {"type": "image", "mimeType": "image/png", "data": ""}


def telling(*chunks: tuple[str, str | dict[str, Any]]) -> Told:
    """Return what was told by users and by the agent, in order."""
    told = Told()
    for who, said in chunks:
        content = {"type": "text", "text": said} if isinstance(said, str) else said
        update = {"sessionUpdate": f"{who}_chunk", "content": content}
        told.add({"method": "session/update", "params": {"update": update}})
    return told


def user(said: str | dict[str, Any]) -> tuple[str, str | dict[str, Any]]:
    return "user_message", said


def agent(said: str) -> tuple[str, str | dict[str, Any]]:
    return "agent_message", said


def sent(*texts: str, others: int = 0) -> Sent:
    return Sent(texts=texts, others=others)


BEFORE = [user("Please go on with the tests, yes?"), agent("On"), agent("e.")]


@pytest.mark.parametrize(
    ("chunks", "since", "count"),
    [
        ([], [sent("go on")], 1),
        ([], [sent("Please go on with the tests, yes?")], 1),
        ([user("go on")], [sent("go on")], 2),
        ([user("go on")], [sent("go on"), sent("go on")], 2),
        ([user("go on with it")], [sent("go on")], 1),
        ([user("Now go on")], [sent("go on")], 1),
        ([user("go on"), user("go on")], [sent("go on"), sent("go on")], 3),
        ([user("two"), user("three")], [sent("three"), sent("two")], 2),
    ],
    ids=[
        "a part of what was answered",
        "the same as what was answered",
        "told",
        "told once, said twice",
        "the beginning of another",
        "the end of another",
        "told twice",
        "in another order",
    ],
)
def test_a_message_is_found_whole_once_and_after_the_answer(chunks: Any, since: list[Sent], count: int):
    assert telling(*BEFORE, *chunks).count_had("One.", since) == count


@pytest.mark.parametrize(
    "chunks",
    [
        [user("Look:"), user("```py\nx = 1\n```"), user("yes")],
        [user("Look:\n```py\nx = 1\n```"), user("yes")],
        [user("Look:\n\n```py\nx = 1\n```\n\nyes")],
        [user("Lo"), user("ok: ```py\nx ="), user(" 1\n```"), user("ye"), user("s")],
        [user("[user]"), user("Look:"), user("```py\nx = 1\n```"), user("<date>"), user("yes")],
        [user("[user]\nLook:```py\nx = 1\n```yes")],
    ],
    ids=["by block", "by message", "as one", "in pieces", "with more", "behind a guard"],
)
def test_an_agent_may_tell_messages_in_any_pieces(chunks: Any):
    since = [sent("Look:", "```py\nx = 1\n```"), sent("yes"), sent("yes")]
    assert telling(*BEFORE, *chunks).count_had("One.", since) == 3


def test_images_alone_are_counted():
    told = telling(user(IMAGE), agent("One."), user(IMAGE), user("two"))
    assert told.count_had("One.", [sent(others=1), sent("two"), sent(others=1)]) == 3
    assert told.count_had("One.", [sent("two", others=1), sent(others=1)]) == 2
    assert telling(agent("One."), user("two")).count_had("One.", [sent("two", others=1)]) == 2


def test_an_answer_that_was_cut_off_and_dropped_leaves_what_it_answered():
    told = telling(*BEFORE, user("go on"))
    assert told.count_had("Half of an", [sent("go on")]) == 1, "that one was answered"
    told = telling(*BEFORE, user("go on"), user("go on"))
    assert told.count_had("Half of an", [sent("go on"), sent("go on")]) == 2


def test_an_answer_that_only_the_agent_has_is_no_reason_to_say_again_what_it_answered():
    told = telling(*BEFORE, user("go on"), agent("Half of an"))
    assert told.count_had("One.", [sent("go on"), sent("go on")]) == 2


def test_an_agent_that_tells_nothing_has_the_answer():
    assert Told().count_had("One.", [sent("go on")]) == 1
    assert Told().count_had("", []) == 1


@pytest.mark.parametrize("odd", [None, [], {}, {"params": {"update": {"sessionUpdate": []}}}])
def test_other_messages_say_nothing(odd: Any):
    told = Told()
    told.add(odd)
    told.add({"params": {"update": {"sessionUpdate": "agent_thought_chunk", "content": {"text": "Hm."}}}})
    assert told.answers() == ""


def test_a_flood_is_kept_in_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(told_module, "MAX_TOLD_CHARS", 1_000)
    assert 0 < len(telling(*[agent("x")] * 1_000).answers()) < 100
