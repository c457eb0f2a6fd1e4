"""Hooks are told beside the turn: in order, each within its time, and never in its way."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from codesdk.minicode.config import HookLimits
from codesdk.minicode.plugins import HookContext, LoadedPlugin, PluginHook, TurnHooks
from codesdk.minicode.types import Finish, TextDelta, TurnEvent, Usage

PLUGIN = LoadedPlugin(reference="acme", id="acme-plugin")
CONTEXT = HookContext(session_id="ses", cwd="/work")
LAST = Finish(finish_reason="stop", total_usage=Usage())
QUICK = HookLimits(timeout_ms=10)


def delta(text: str) -> TurnEvent:
    return TextDelta(block_id="b", text=text)


def made(*hooks: Any, limits: HookLimits | None = None, **options: Any) -> TurnHooks:
    return TurnHooks([PluginHook(PLUGIN, hook) for hook in hooks], CONTEXT, limits or HookLimits(), **options)


async def tell(hooks: TurnHooks, events: Sequence[TurnEvent]) -> None:
    for event in events:
        hooks.tell(event)
    await hooks.finished()


async def test_every_hook_is_told_of_every_event_in_order():
    told: list[tuple[str, TurnEvent, HookContext]] = []

    async def first(event: TurnEvent, context: HookContext) -> None:
        await asyncio.sleep(0)
        told.append(("first", event, context))

    async def second(event: TurnEvent, context: HookContext) -> None:
        told.append(("second", event, context))

    events = [delta("a"), delta("b"), LAST]
    await tell(made(first, second), events)
    assert told == [(name, event, CONTEXT) for event in events for name in ("first", "second")]


async def test_a_hook_that_fails_is_logged_and_told_of_what_follows(caplog: pytest.LogCaptureFixture):
    told: list[TurnEvent] = []

    async def breaks(event: TurnEvent, context: HookContext) -> None:
        told.append(event)
        raise SystemExit(1) if event is LAST else ValueError("no")

    await tell(made(breaks), [delta("a"), LAST])
    assert told == [delta("a"), LAST]
    assert caplog.messages == [
        "The plugin acme (acme-plugin) failed at the stage run: a hook raised ValueError: no.",
        "The plugin acme (acme-plugin) failed at the stage run: a hook raised SystemExit: 1.",
    ]


async def test_a_hook_that_is_late_three_times_in_a_row_is_off_for_the_turn(caplog: pytest.LogCaptureFixture):
    late: list[TurnEvent] = []
    other: list[TurnEvent] = []

    async def hangs(event: TurnEvent, context: HookContext) -> None:
        late.append(event)
        await asyncio.Event().wait()

    async def works(event: TurnEvent, context: HookContext) -> None:
        other.append(event)

    events = [*(delta(str(number)) for number in range(6)), LAST]
    await tell(made(hangs, works, limits=QUICK), events)
    assert (late, other) == (events[:3], events)
    words = "The plugin acme (acme-plugin) failed at the stage run: a hook took more than 10 ms"
    off = ", 3 times in a row: it is off for the rest of this turn."
    assert caplog.messages == [f"{words}.", f"{words}.", f"{words}{off}"]
    late.clear()
    await tell(made(hangs, limits=QUICK), [LAST])  # the next turn
    assert late == [LAST]


async def test_only_timeouts_in_a_row_count():
    told: list[TurnEvent] = []

    async def sometimes(event: TurnEvent, context: HookContext) -> None:
        told.append(event)
        if len(told) % 3:
            await asyncio.Event().wait()

    events = [*(delta(str(number)) for number in range(8)), LAST]
    await tell(made(sometimes, limits=QUICK), events)
    assert told == events


async def test_telling_never_waits_and_too_many_events_are_dropped_but_not_the_last(
    caplog: pytest.LogCaptureFixture,
):
    told: list[TurnEvent] = []
    go_on = asyncio.Event()

    async def slow(event: TurnEvent, context: HookContext) -> None:
        await go_on.wait()
        told.append(event)

    hooks = made(slow, max_waiting=3)
    for number in range(10):
        hooks.tell(delta(str(number)))  # not a moment for the hook: nothing here gives it one
    hooks.tell(LAST)
    go_on.set()
    await hooks.finished()
    assert told == [delta("0"), delta("1"), LAST]
    assert hooks.dropped == 8
    assert caplog.messages == ["Hooks are too slow: 3 events wait for them, further ones are dropped"]


async def test_after_the_last_event_and_without_hooks_nothing_is_kept():
    async def fine(event: TurnEvent, context: HookContext) -> None:
        pass

    hooks = made(fine)
    await tell(hooks, [LAST])
    hooks.tell(delta("late"))
    assert len(hooks._waiting) == 0
    none = made()
    none.tell(LAST)
    await none.finished()
    await none.close()
    assert len(none._waiting) == 0


async def test_closing_cancels_the_hook_that_runs():
    began, ended = asyncio.Event(), asyncio.Event()

    async def hangs(event: TurnEvent, context: HookContext) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    hooks = made(hangs)
    hooks.tell(delta("a"))
    await began.wait()
    await hooks.close()
    assert ended.is_set()
