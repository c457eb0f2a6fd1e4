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
    FAILING,
    POLICY,
    TYPES,
    Chosen,
    Moment,
    Plan,
    alone,
    check_life,
    expected,
    hostings,
    logged,
    noted,
    noting_order,
    passes,
    sets,
    winner,
    work,
    write,
)
from tests.extensions.rig import WRITES, Emitted, Extensions, extended, settle

from codesdk.extensions import ActionResult, HandlerError, HandlerResult
from codesdk.extensions.worker import Hosting

WORKER = str(Path(__file__).with_name("kill_worker.py"))


@pytest.mark.slow
@pytest.mark.process
@settings(max_examples=max(15, COUNTS.extension_histories))
@given(hosting=hostings, first=sets, second=sets, tasks=st.integers(1, 3))
def test_whatever_handlers_do_the_contract_holds(hosting: Hosting, first: Chosen, second: Chosen, tasks: int):
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(live(Path(home), hosting, first, second, 1 if alone(hosting, first, second) else tasks))


async def live(home: Path, hosting: Hosting, first: Chosen, second: Chosen, tasks: int) -> None:
    ext = Extensions(home / "extensions", hosting)
    write(ext, first)
    async with extended(ext, home, WRITES * 4, policy=POLICY) as sdk:
        emitted = Emitted(sdk)
        await work(sdk, home, tasks)
        check(first, ext, emitted)
        ext.notes.unlink(missing_ok=True)
        emitted.all.clear()
        replacing = {name: second.get(name, []) for name in {**first, **second}}
        write(ext, replacing)
        await sdk.extensions.reload()
        await work(sdk, home, tasks)
        check(replacing, ext, emitted)
        await logged(sdk)


def check(chosen: Chosen, ext: Extensions, emitted: Emitted) -> None:
    check_life(chosen, ext.hosting, noted(ext.notes), whole=True)
    for name, results in emitted.all:
        places = expected(chosen, name)
        assert [one.module_name for one in results] == [one.module for one in places]
        actions = [one for one in results if isinstance(one, ActionResult)]
        performed = [one for one in actions if one.status == "performed"]
        if name == "approval.requested" and (wins := winner(chosen)) is not None:
            assert [one.module_name for one in performed] == [wins[0]]
            after = actions[actions.index(performed[0]) + 1 :]
            assert {one.status for one in after} <= {"not_eligible"}
        else:
            assert performed == []
        for result, place in zip(results, places, strict=True):
            check_result(place.kind, result)


def check_result(kind: str, result: Any) -> None:
    if kind in FAILING:
        assert isinstance(result, HandlerError)
        assert result.error == ("timeout" if kind == "hang" else "error")
    elif kind in ("late", "fine", "reads"):
        assert isinstance(result, HandlerResult)
    else:
        assert isinstance(result, ActionResult)


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
]
deaths = st.tuples(st.integers(1, 2), st.sampled_from(MOMENTS), st.integers(0, 6))
BUSY: Chosen = {
    "a": [("approval.requested", "fine", 1), ("task.started", "late", 100), ("turn.completed", "fine", 1)],
    "b": [("approval.requested", "approve", 1), ("turn.completed", "raise", 1)],
    "c": [("approval.requested", "deny", 1), ("task.started", "hang", 1)],
}


@pytest.mark.slow
@pytest.mark.process
@settings(max_examples=COUNTS.extension_histories)
@given(hosting=hostings, chosen=sets, lives=st.lists(deaths, min_size=1, max_size=3))
@example("in_process", BUSY, [(1, "called", 1), (1, "acted", 0), (1, "keeping", 2)])
@example("subprocess", BUSY, [(1, "calling", 1), (1, "kept", 2)])
def test_over_kills_every_event_reaches_its_handlers_and_every_question_has_one_winner(
    hosting: Hosting, chosen: Chosen, lives: Sequence[tuple[int, Moment, int]]
):
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        ext = Extensions(home / "extensions", hosting)
        write(ext, chosen)
        (home / "ws").mkdir()
        told: list[list[list[Any]]] = []
        for tasks, moment, count in lives:
            tasks = 1 if alone(hosting, chosen) else tasks
            plan = Plan(hosting=hosting, tasks=tasks, moment=moment, count=count)
            ended = outlive(home, plan)
            told.append(noted(ext.notes))
            ext.notes.unlink(missing_ok=True)
            check_life(chosen, hosting, told[-1], whole=ended == 0)
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
    told.append(noted(ext.notes))
    check_life(chosen, ext.hosting, told[-1], whole=True)
    each = [passes(lines, repeated=alone(ext.hosting, chosen)) for lines in told]
    wanted = {name: noting_order(chosen, name) for name in TYPES}
    for name, correlation in found.told:
        handled = [life.get((name, correlation), []) for life in each]
        assert wanted[name] in handled, f"{name} {correlation} was never dispatched to the end"
    assert {event for life in each for event in life} <= found.told
    for answers in found.answers:
        given = [(who, decision) for kind, who, decision in answers if kind == "extension"]
        assert len(answers) <= 1
        assert given in ([], [winner(chosen)])
        if winner(chosen) is not None:
            assert not [kind for kind, *_ in answers if kind == "user"], "the extension was faster"
