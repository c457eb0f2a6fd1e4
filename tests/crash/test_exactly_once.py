"""A process killed while an approved call is on its way: the tool has run at most once, and the log says what is known.

A worker kills itself with SIGKILL at every step between the approval and the end of a call. What is then in the
directory is looked at as it was left, recovered, resumed by another process, and looked at again.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.once_worker import EFFECTS, MOMENTS, counting_tools

from codesdk import CodeSDK, Conflict, Session
from codesdk.contract import events as ev
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.local.directory import DataDir
from codesdk.testing.fakes import FakeRuntime, done, message

pytestmark = pytest.mark.anyio

WORKER = str(Path(__file__).with_name("once_worker.py"))
LOST = "The process ended while this ran; whether it took effect is not known."
UNRUN = "Not run: the process ended before it started."

# What a killed process leaves of the call, and how often its tool has run by then.
LEFT: dict[str, tuple[str | None, int]] = {
    "approved unstored": (None, 0),
    "approved stored": ("approved", 0),
    "started unstored": ("approved", 0),
    "started stored": ("started", 0),
    "tool before": ("started", 0),
    "tool after": ("started", 1),
    "completed unstored": ("started", 1),
    "completed stored": ("completed", 1),
}

# An approval that needs no answer is stored in one commit with the start that follows from it.
LEFT_AT_ONCE = LEFT | {"approved stored": ("started", 0), "started unstored": (None, 0)}


class Place:
    """A data directory and a workspace that several processes work on, one after the other."""

    def __init__(self, home: Path) -> None:
        self.data = home / "data"
        self.workspace = home / "workspace"
        self.workspace.mkdir()

    def kill(self, flow: str, moment: str = "never") -> None:
        """Let a worker go its way until it is killed."""
        done = subprocess.run(
            [sys.executable, WORKER, str(self.data), str(self.workspace), flow, moment],
            env={**os.environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    @property
    def runs(self) -> list[int]:
        """The attempts whose tool has left its line."""
        effects = self.workspace / EFFECTS
        return (
            [int(line.split()[-1]) for line in effects.read_text().splitlines()] if effects.exists() else []
        )

    async def stored(self) -> list[Event]:
        """Return what the killed process left."""
        directory = await DataDir.open_reader(self.data)
        try:
            (row,) = await directory.log.sessions(after=None, limit=10, principal=None, status=None)
            return [decode(frame.data) for frame in await directory.log.read(row.session_id, 0, 1000)]
        finally:
            await directory.close()

    async def left(self, attempt: int = 1) -> str | None:
        """Return the last thing that is stored of an attempt, as the killed process left it."""
        kinds = (ev.ToolCallApprovedEvent, ev.ToolCallStartedEvent, ev.ToolCallCompletedEvent)
        found = [event for event in await self.stored() if isinstance(event, kinds)]
        mine = [event.type.removeprefix("tool.call.") for event in found if event.payload.attempt == attempt]
        return mine[-1] if mine else None

    def open(self) -> Any:
        """Open the directory as the next process does. Its runtime goes on without calling anything."""
        runtime = FakeRuntime([message("Going on.", "after"), done()])
        return CodeSDK.open(
            self.data, runtimes={"scripted": runtime}, tools=counting_tools(), allow_yolo=True
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def only_session(sdk: CodeSDK) -> Session:
    (row,) = await sdk.sessions()
    return await sdk.session(row.session_id)


async def events(sdk: CodeSDK, session: Session) -> list[Event]:
    return [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


async def attempts(sdk: CodeSDK, session: Session) -> dict[int, list[str]]:
    """Return how each attempt went: the types of its events, and what is known of its end."""
    found: dict[int, list[str]] = {}
    for event in await events(sdk, session):
        payload = event.payload
        if isinstance(payload, ev.ToolCallCompleted):
            found[payload.attempt].append(f"completed {payload.outcome} {payload.result_preview}")
        elif isinstance(payload, ev.ToolCallApproved | ev.ToolCallStarted):
            found.setdefault(payload.attempt, []).append(event.type.removeprefix("tool.call."))
        elif isinstance(payload, ev.ToolCallDenied):
            found.setdefault(payload.attempt, []).append("denied, carried" if payload.carried else "denied")
    return found


async def check(sdk: CodeSDK, session: Session) -> None:
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session.id) == []
    assert (await replay_session(log, blobs, session.id))[1] == []


def ran(left: str | None) -> list[str]:
    """Return how an attempt must be in the log after recovery, given what was stored of it."""
    return {
        "approved": ["approved", "started", f"completed known {UNRUN}"],
        "started": ["approved", "started", f"completed unknown {LOST}"],
        "completed": ["approved", "started", "completed known counted"],
        None: ["denied, carried"],
    }[left]


def test_every_moment_has_its_place_in_the_table():
    assert list(LEFT) == MOMENTS


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("flow", ["person", "policy"])
async def test_an_approved_call_runs_at_most_once_wherever_its_process_is_killed(
    place: Place, flow: str, moment: str
):
    left, runs = (LEFT if flow == "person" else LEFT_AT_ONCE)[moment]
    place.kill(flow, moment)
    assert (await place.left(), place.runs) == (left, [1] * runs)
    # A policy may be quicker than the store: then the request is in the batch that was never stored, and there is no call.
    requested = any(isinstance(event, ev.ToolCallRequestedEvent) for event in await place.stored())
    assert requested or (flow == "policy" and left is None)
    went = {1: ran(left)} if requested else {}
    async with place.open() as sdk:
        session = await only_session(sdk)
        assert await attempts(sdk, session) == went
        waiting = [row.state for row in await sdk.approvals()]
        assert waiting == (["carried"] if flow == "person" and left is None else [])
        task = await session.resume("Go on")
        assert (await task.result()).text == "Going on."
        assert await attempts(sdk, session) == went
        await check(sdk, session)
    assert place.runs == [1] * runs


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_call_approved_after_a_crash_runs_at_most_once_wherever_its_resume_is_killed(
    place: Place, moment: str
):
    place.kill("ask")
    async with place.open() as sdk:
        (row,) = await sdk.approvals()
        await (await only_session(sdk)).approve(row.tool_call_id or "", reason="go on")
    left, runs = LEFT_AT_ONCE[moment]
    place.kill("resume", moment)
    assert (await place.left(2), place.runs) == (left, [2] * runs)
    async with place.open() as sdk:
        session = await only_session(sdk)
        still = [(row.state, row.attempt) for row in await sdk.approvals()]
        assert still == ([("approved", 1)] if left is None else [])
        expected = {1: ["denied, carried"]} | ({} if left is None else {2: ran(left)})
        assert await attempts(sdk, session) == expected
        await (await session.resume("Go on")).result()
        if left is None:  # nothing of the second attempt was stored: the approval still holds, once
            expected[2] = ran("completed")
            runs = 1
        assert await attempts(sdk, session) == expected
        await check(sdk, session)
    assert place.runs == [2] * runs


async def test_a_question_outlives_one_restart_after_another_and_its_answer_takes_effect_once(place: Place):
    place.kill("ask")
    for _ in range(2):
        async with place.open() as sdk:
            (row,) = await sdk.approvals()
            assert (row.state, row.attempt, row.tool, row.task_id) == ("carried", 1, "count.write", None)
    async with place.open() as sdk:
        await (await only_session(sdk)).approve(row.tool_call_id or "", reason="go on")
    assert place.runs == []
    async with place.open() as sdk:
        assert [row.state for row in await sdk.approvals()] == ["approved"]
        session = await only_session(sdk)
        with pytest.raises(Conflict):
            await session.deny(row.tool_call_id or "", "too late")
        await (await session.resume()).result()
        assert (place.runs, await sdk.approvals()) == ([2], [])
        assert await attempts(sdk, session) == {1: ["denied, carried"], 2: ran("completed")}
        with pytest.raises(Conflict):
            await session.resume()
        await check(sdk, session)
    assert place.runs == [2]


async def test_a_question_that_is_denied_after_a_restart_never_runs(place: Place):
    place.kill("ask")
    async with place.open() as sdk:
        (row,) = await sdk.approvals()
        await (await only_session(sdk)).deny(row.tool_call_id or "", "not any more")
        assert await sdk.approvals() == []
    async with place.open() as sdk:
        session = await only_session(sdk)
        await (await session.resume()).result()
        assert await attempts(sdk, session) == {1: ["denied, carried"]}
        await check(sdk, session)
    assert place.runs == []


async def test_a_second_terminal_answers_what_a_killed_process_left(place: Place):
    from tests.cli.shell import MODULE, environment

    place.kill("ask")

    def codesdk(*words: str) -> str:
        done = subprocess.run(
            [*MODULE, "--data-dir", str(place.data), *words],
            env=environment({}),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    listed = msgspec.json.decode(codesdk("approve", "last", "--json"))
    assert (listed["tool"], listed["state"]) == ("count.write", "waiting")
    assert "It runs with" in codesdk("approve", "last", listed["tool_call_id"])
    async with place.open() as sdk:
        assert [row.state for row in await sdk.approvals()] == ["approved"]
        await (await (await only_session(sdk)).resume()).result()
    assert place.runs == [2]
