"""A process killed in a task that goes on by itself: the next process ends the task, and no call runs twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.crash.once_worker import EFFECTS
from tests.runtimes.alone import alone

from codesdk import CodeSDK
from codesdk.contract import events as ev
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.tools import Actor
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session

WORKER = str(Path(__file__).with_name("going_on_worker.py"))
ENGINE = Actor(kind="engine")


class Place:
    """A data directory and a workspace that several processes work on, one after the other."""

    def __init__(self, home: Path, runtime: str) -> None:
        self.data, self.workspace, self.runtime = home / "data", home / "workspace", runtime
        self.workspace.mkdir()

    def work(self, moment: str) -> int:
        """Let a worker go its way until it ends or is killed. Return its exit code."""
        command = [sys.executable, WORKER, str(self.data), str(self.workspace), self.runtime, moment]
        done = subprocess.run(
            command, env={**os.environ}, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode

    @property
    def runs(self) -> int:
        """How often the tool has run."""
        effects = self.workspace / EFFECTS
        return len(effects.read_text().splitlines()) if effects.exists() else 0

    async def events(self) -> list[Event]:
        """Return the whole log, checked."""
        async with CodeSDK.open(self.data, goes_on=False, providers={}) as sdk:
            (row,) = await sdk.sessions()
            log, blobs = sdk.archive.log, sdk.archive.blobs
            assert await verify_session(log, blobs, row.session_id) == []
            assert (await replay_session(log, blobs, row.session_id))[1] == []
            return [decode(frame.data) async for frame in sdk.archive.frames(row.session_id)]


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    runtime = getattr(request, "param", "scripted")
    with alone() if runtime != "scripted" else nullcontext():
        yield Place(tmp_path, runtime)


def started(events: list[Event]) -> list[ev.TaskStarted]:
    return [event.payload for event in events if isinstance(event.payload, ev.TaskStarted)]


@pytest.mark.parametrize("place", ["scripted", "codex-sdk"], indirect=True)
async def test_the_next_process_ends_the_task_without_anyone_asking_and_the_call_ran_once(place: Place):
    assert place.work("tool.call.completed") == -signal.SIGKILL
    assert place.runs == 1
    assert place.work("never") == 0
    assert place.runs == 1
    events = await place.events()
    first, second = started(events)
    assert first.resumes is None
    assert second.resumes is not None
    assert (second.resumes.by, second.resumes.attempt) == (ENGINE, 1)
    (end,) = [event.payload for event in events if isinstance(event.payload, ev.TaskCompleted)]
    assert end.text == "Done."


async def test_a_call_that_was_cut_off_is_not_made_again_and_a_killed_resume_is_resumed(place: Place):
    assert place.work("tool.call.started") == -signal.SIGKILL  # it may have run: nobody can tell
    assert place.work("task.started") == -signal.SIGKILL
    before = place.runs
    assert place.work("never") == 0
    assert place.runs == before <= 1
    events = await place.events()
    assert [one.resumes.attempt if one.resumes else None for one in started(events)] == [None, 1, 2]
    outcomes = [e.payload.outcome for e in events if isinstance(e.payload, ev.ToolCallCompleted)]
    assert outcomes == ["unknown"]


async def test_a_task_that_kills_its_process_each_time_stops_after_the_bound(place: Place):
    for _ in range(3):
        assert place.work("task.started") == -signal.SIGKILL
    assert place.work("task.started") == 0
    events = await place.events()
    assert len(started(events)) == 3
    (said,) = [event.payload for event in events if isinstance(event.payload, ev.SessionNotResumed)]
    assert (said.cause, said.attempts) == ("attempts", 2)
    assert place.work("never") == 0  # and stays so
    assert len(started(await place.events())) == 3
