"""Random handlers, random sessions, reloads and kills in between: order, one winner, at least once, and nobody waits."""

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.counts import COUNTS
from tests.extensions.histories import (
    ACTING,
    FAILING,
    POLICY,
    STALLING,
    TYPES,
    Chosen,
    Moment,
    Plan,
    acting,
    alone,
    answering,
    check_life,
    expected,
    hostings,
    logged,
    noted,
    noting_order,
    passes,
    sets,
    work,
    write,
)
from tests.extensions.rig import WRITES, Emitted, Extensions, extended, settle

from codesdk.extensions import ActionResult, AgentEventEmitResult, HandlerError, HandlerResult
from codesdk.extensions.worker import Hosting

WORKER = str(Path(__file__).with_name("kill_worker.py"))


@pytest.mark.slow
@pytest.mark.process
@settings(max_examples=max(15, COUNTS.extension_histories))
@given(hosting=hostings, first=sets, second=sets, tasks=st.integers(1, 3), after=st.integers(0, 4))
@example("in_process", {"a": [("task.started", "block", 1), ("approval.requested", "steer", 1)]}, {}, 1, 1)
@example("subprocess", {"a": [("task.started", "block", 1), ("approval.requested", "queue", 1)]}, {}, 1, 1)
def test_whatever_handlers_do_the_contract_holds(
    hosting: Hosting, first: Chosen, second: Chosen, tasks: int, after: int
):
    with tempfile.TemporaryDirectory() as home:
        tasks = 1 if alone(hosting, first, second) else tasks
        asyncio.run(live(Path(home), hosting, first, second, tasks, after))


async def live(home: Path, hosting: Hosting, first: Chosen, second: Chosen, tasks: int, after: int) -> None:
    """Work, and after so many dispatches replace the handlers while they are at it; then work with the new ones."""
    ext = Extensions(home / "extensions", hosting)
    write(ext, first)
    replacing = {name: second.get(name, []) for name in {**first, **second}}
    async with extended(ext, home, WRITES * 4, policy=POLICY) as sdk:
        emitted = Emitted(sdk)
        working = asyncio.create_task(work(sdk, home, tasks))
        await asyncio.wait([working, emitted.reached(after)], return_when=asyncio.FIRST_COMPLETED)
        write(ext, replacing, generation=1)
        await sdk.extensions.reload()
        await working
        check([first, replacing], ext, emitted)
        ext.notes.unlink(missing_ok=True)
        emitted.all.clear()
        await work(sdk, home, tasks)
        check([{}, replacing], ext, emitted)
        assert all(len(answers) == 1 for answers in (await logged(sdk)).answers)


def check(generations: Sequence[Chosen], ext: Extensions, emitted: Emitted) -> None:
    """Check that every event was dispatched to one generation of handlers, and to the whole of it."""
    lines = noted(ext.notes)
    handled: list[set[tuple[str, str]]] = []
    for number, chosen in enumerate(generations):
        own = [line for line in lines if line[0] == "late" or line[4] == number]
        check_life(chosen, ext.hosting, own, whole=True)
        handled.append(set(passes(own)))
    assert not set.intersection(*handled)
    for name, results in emitted.all:
        assert any(agrees(chosen, name, results) for chosen in generations), (name, results)


def agrees(chosen: Chosen, name: str, results: Sequence[AgentEventEmitResult]) -> bool:
    """Return whether these handlers can have led to these results of an event: in order, with the winner that there is."""
    places = expected(chosen, name)
    if [one.module_name for one in results] != [one.module for one in places]:
        return False
    wins = acting(chosen, name)[:1]
    seen_winner = False
    stalled: set[str] = set()
    for result, place in zip(results, places, strict=True):
        if isinstance(result, HandlerError) and result.error == "timeout":
            if place.kind not in STALLING and place.module not in stalled:
                return False
            # On a busy machine its thread may be found stuck for longer than it stalls; then it is not called again yet.
            stalled.add(place.module)
            continue
        if not fits(place.kind, result):
            return False
        if isinstance(result, ActionResult):
            if (result.status == "performed") != (place in wins):
                return False
            if seen_winner and result.status != "not_eligible":
                return False
            seen_winner = seen_winner or result.status == "performed"
    return True


def fits(kind: str, result: AgentEventEmitResult) -> bool:
    """Return whether a handler that behaves like this can have had this result."""
    if kind == "block" and isinstance(result, HandlerResult):
        return True  # on a busy machine it may go on before anybody sees that its time is over
    if kind in FAILING:
        error = "timeout" if kind in STALLING else "error"
        return isinstance(result, HandlerError) and result.error == error
    return isinstance(result, ActionResult if kind in ACTING else HandlerResult)


# --- kills ---------------------------------------------------------------------------------------

MOMENTS: list[Moment] = [
    "event",
    "call",
    "calling",
    "called",
    "action",
    "acted",
    "dispatched",
    "keeping",
    "kept",
    "reloading",
    "reloaded",
]
deaths = st.tuples(st.integers(1, 2), st.booleans(), st.sampled_from(MOMENTS), st.integers(0, 6))
BUSY: Chosen = {
    "a": [("approval.requested", "fine", 1), ("task.started", "late", 100), ("turn.completed", "fine", 1)],
    "b": [("approval.requested", "approve", 1), ("turn.completed", "raise", 1)],
    "c": [("approval.requested", "deny", 1), ("task.started", "hang", 1)],
}
ENDING: Chosen = {"c": [("turn.completed", "approve", 100), ("turn.completed", "deny", 100)]}
ASKING: Chosen = {
    "a": [("approval.requested", "queue", 1), ("task.started", "steer", 1), ("turn.completed", "upsert", 1)],
    "b": [("approval.requested", "approve", 100), ("task.started", "queue", 100)],
}


@pytest.mark.slow
@pytest.mark.process
@settings(max_examples=COUNTS.extension_histories)
@given(hosting=hostings, chosen=sets, lives=st.lists(deaths, min_size=1, max_size=3))
@example("in_process", BUSY, [(1, False, "called", 1), (1, True, "acted", 0), (1, False, "keeping", 2)])
@example("subprocess", BUSY, [(1, True, "calling", 1), (1, False, "kept", 2)])
@example("in_process", BUSY, [(2, True, "reloading", 0), (2, True, "reloaded", 0)])
@example("subprocess", ENDING, [(1, False, "action", 0), (2, True, "call", 3), (1, True, "reloaded", 5)])
@example("in_process", ASKING, [(1, False, "acted", 0), (1, True, "keeping", 1)])
def test_over_kills_every_event_reaches_its_handlers_and_every_question_has_one_winner(
    hosting: Hosting, chosen: Chosen, lives: Sequence[tuple[int, bool, Moment, int]]
):
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        ext = Extensions(home / "extensions", hosting)
        (home / "ws").mkdir()
        told: list[list[list[Any]]] = []
        for number, (tasks, reloads, moment, count) in enumerate(lives):
            # A file for each life: the process of an extension may outlive its parent for a moment.
            ext.notes = home / f"notes-{number}.jsonl"
            write(ext, chosen)
            tasks = 1 if alone(hosting, chosen) else tasks
            plan = Plan(hosting=hosting, reloads=reloads, tasks=tasks, moment=moment, count=count)
            ended = outlive(home, plan)
            told.append(noted(ext.notes))
            check_life(chosen, hosting, told[-1], whole=ended == 0)
        ext.notes = home / "notes.jsonl"
        write(ext, chosen)
        asyncio.run(last_life(home, ext, chosen, told))


def outlive(home: Path, plan: Plan) -> int:
    """Run a process to its end, by itself or by a kill."""
    argv = [sys.executable, WORKER, str(home), msgspec.json.encode(plan).decode()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


async def last_life(home: Path, ext: Extensions, chosen: Chosen, told: list[list[list[Any]]]) -> None:
    """Let what is left be delivered, and look at all that ever happened."""
    async with extended(ext, home, WRITES, policy=POLICY, stored=True) as sdk:
        await settle(sdk)
        found = await logged(sdk)
        jobs = await sdk.jobs()
    told.append(noted(ext.notes))
    check_life(chosen, ext.hosting, told[-1], whole=True)
    each = [passes(lines, repeated=alone(ext.hosting, chosen)) for lines in told]
    wanted = {name: noting_order(chosen, name) for name in TYPES}
    for name, correlation in found.told:
        handled = [life.get((name, correlation), []) for life in each]
        # One whose thread hangs may not come to the next event in its time, which then counts as an error of its own.
        stalled = {module for module, some in chosen.items() if any(kind in STALLING for _, kind, _ in some)}
        enough = [one for one in wanted[name] if one[0] not in stalled]
        assert wanted[name] in handled or enough in [
            [one for one in life if one[0] not in stalled] for life in handled
        ], f"{name} {correlation} was never dispatched to the end: {handled}"
    assert {event for life in each for event in life} <= found.told
    assert len({row.identity for row in jobs}) == len(jobs), "every job is queued once"
    first = acting(chosen, "approval.requested")[:1]
    for answers in found.answers:
        given = [(who, decision) for kind, who, decision in answers if kind == "extension"]
        assert len(answers) <= 1
        assert set(given) <= set(answering(chosen))
        if first and first[0].kind in ("approve", "deny"):
            assert not [kind for kind, *_ in answers if kind == "user"], "the extension was faster"
