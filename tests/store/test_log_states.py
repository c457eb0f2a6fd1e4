"""Any sequence of creates, appends, failures, takeovers, deletes and restarts leaves what a list would hold."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.counts import COUNTS
from tests.store.samples import session, task

from codesdk.contract.errors import CodeSDKError, Conflict
from codesdk.contract.ports import EventLog
from codesdk.contract.records import Changes, Snapshot
from codesdk.store.memory import MemoryLog
from codesdk.store.sqlite.log import SqliteLog

NAMES = st.sampled_from(["ses_1", "ses_2", "ses_3"])
SIZES = st.integers(0, 3)


class _Model:
    def __init__(self) -> None:
        self.epoch = 1
        self.frames: list[bytes] = []
        self.snapshot: Snapshot | None = None


class LogMachine(RuleBasedStateMachine):
    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp())
        self.sessions: dict[str, _Model] = {}
        self.order: list[tuple[str, int]] = []
        self.used: dict[int, tuple[str, int, bytes]] = {}
        self.counter = 0

    def run(self, awaitable: Any) -> Any:
        async def wait() -> Any:
            return await awaitable

        return self.runner.run(wait())

    @initialize()
    def open(self) -> None:
        async def make() -> EventLog:
            if self.kind == "memory":
                return MemoryLog()
            return await SqliteLog.open(self.directory / "codesdk.db")

        self.log: EventLog = self.runner.run(make())

    def teardown(self) -> None:
        self.run(self.log.close())
        self.runner.close()
        shutil.rmtree(self.directory)

    def frames(self, count: int) -> list[bytes]:
        self.counter += count
        return [str(self.counter - n).encode() for n in range(count)]

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if name in self.sessions:
            with pytest.raises(Conflict):
                self.run(self.log.create(session(name), "me"))
        else:
            assert self.run(self.log.create(session(name), "me")) == 1
            self.sessions[name] = _Model()

    @rule(name=NAMES)
    def take(self, name: str) -> None:
        if name in self.sessions:
            self.sessions[name].epoch += 1
            assert self.run(self.log.take(name, "other")) == self.sessions[name].epoch

    @rule(
        plan=st.lists(
            st.tuples(NAMES, SIZES, st.sampled_from([0, 0, 0, 0, 1, -1]), st.sampled_from([0, 0, 0, -1]))
        )
    )
    def append_together(self, plan: list[tuple[str, int, int, int]]) -> None:
        """Queue several appends at once, some at a wrong seq or under an old epoch, and see which were taken."""
        expected: list[bool] = []
        failed: set[tuple[str, int]] = set()
        heads = {name: len(model.frames) for name, model in self.sessions.items()}
        calls: list[tuple[str, int, int, list[bytes], bytes]] = []
        for name, size, slip, lag in plan:
            model = self.sessions.get(name)
            epoch = (model.epoch if model else 1) + lag
            first, frames = heads.get(name, 0) + 1 + slip, self.frames(size)
            state = str(self.counter).encode()
            calls.append((name, epoch, first, frames, state))
            good = model is not None and slip == 0 and lag == 0 and (name, epoch) not in failed
            expected.append(good)
            if not good:
                failed.add((name, epoch))
            elif model is not None:
                model.frames += frames
                self.order += [(name, heads[name] + n + 1) for n in range(size)]
                heads[name] += size
                model.snapshot = Snapshot(seq=heads[name], state=state)

        async def run() -> list[Any]:
            waiting = [
                self.log.append(
                    name, epoch, first, frames, durable=size % 2 == 0, changes=Changes(snapshot=state)
                )
                for (name, epoch, first, frames, state), (_, size, _, _) in zip(calls, plan, strict=True)
            ]
            return await asyncio.gather(*waiting, return_exceptions=True)

        results = self.runner.run(run())
        assert [result is None for result in results] == expected
        assert all(result is None or isinstance(result, CodeSDKError) for result in results)

    @precondition(lambda self: len(self.sessions) > 1)
    @rule()
    def refuse_a_row_among_neighbours(self) -> None:
        """A batch in which one append breaks a rule of the tables: it alone fails."""
        (one, first), (two, second) = list(self.sessions.items())[:2]
        taken = f"task_{self.counter}"
        good, bad = self.frames(1), self.frames(1)

        async def run() -> tuple[Any, Any]:
            rows = [Changes(tasks=[task(taken, name)]) for name in (one, two)]
            return await asyncio.gather(
                self.log.append(
                    one, first.epoch, len(first.frames) + 1, good, durable=False, changes=rows[0]
                ),
                self.log.append(
                    two, second.epoch, len(second.frames) + 1, bad, durable=False, changes=rows[1]
                ),
                return_exceptions=True,
            )

        results = self.runner.run(run())
        assert [type(result) for result in results] == [type(None), Conflict]
        first.frames += good
        self.order.append((one, len(first.frames)))
        self.counter += 1

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.sessions:
            self.run(self.log.delete(name))
            del self.sessions[name]
            self.order = [place for place in self.order if place[0] != name]

    @precondition(lambda self: self.kind != "memory")
    @rule()
    def reopen(self) -> None:
        self.run(self.log.close())
        self.open()

    @invariant()
    def the_log_holds_what_was_committed(self) -> None:
        if not hasattr(self, "log"):
            return
        for name, model in self.sessions.items():
            frames = self.run(self.log.read(name, 0, 1000))
            assert [(frame.seq, frame.data) for frame in frames] == list(enumerate(model.frames, 1))
            assert self.run(self.log.head(name)) == len(model.frames)
            assert self.run(self.log.snapshot(name)) == model.snapshot
        everything = self.run(self.log.read_all(0, 1000))
        assert [(frame.session_id, frame.seq) for frame in everything] == self.order
        cursors = [frame.cursor for frame in everything]
        assert cursors == sorted(set(cursors))
        for frame in everything:  # a cursor means one frame for ever
            place = (frame.session_id, frame.seq, frame.data)
            assert self.used.setdefault(frame.cursor, place) == place


class SqliteMachine(LogMachine):
    kind = "sqlite"


TestMemoryStates = LogMachine.TestCase
TestMemoryStates.settings = settings(max_examples=COUNTS.examples // 2, stateful_step_count=20)
TestSqliteStates = SqliteMachine.TestCase
TestSqliteStates.settings = settings(max_examples=COUNTS.examples // 4, stateful_step_count=15)
