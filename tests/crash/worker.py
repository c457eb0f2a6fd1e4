"""A program to be killed: works on a data directory without end, and says on stdout what it was promised.

    python worker.py DATA_DIR WORKSPACE SEED

One line per thing, written before anything else happens: `up` and `open` (how far it got), `.` (an append
or a blob is on its way), `event SESSION SEQ SHA` (a subscriber saw it), `session ID`, `task SESSION TASK` and
`answer SESSION CALL` (a call returned), `error TEXT` (something that must not be: the test fails).
"""

import asyncio
import hashlib
import os
import random
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from tests.engine.acting import follow, live_session

from codesdk import CodeSDK, Conflict, NotFound, Session, SessionSettings
from codesdk.contract.errors import Busy
from codesdk.contract.events import ApprovalRequested, Event, OutputDelta, TaskFailed
from codesdk.store.sqlite.log import SqliteLog
from codesdk.store.sqlite.split_blobs import SplitBlobs

SCRIPTS = ("tools.yaml", "steered.yaml", "tools.yaml", "talk.yaml")
FIRST_SESSIONS = 4
MAX_SESSIONS = 9
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NO_RESULT = "The model gave no result that fits the output schema."
"""How a task with a schema ends if its script has no result for it."""
EXPECTED = (Conflict, NotFound, Busy)
"""The state may have moved on between looking and acting."""


def say(*words: object) -> None:
    """Write one line at once. Short enough for the kernel to take it whole."""
    os.write(1, " ".join(map(str, words)).encode("ascii", "replace").replace(b"\n", b"|")[:4000] + b"\n")


def announce_writes() -> None:
    """Say that something is about to be stored, so that a kill can fall before, between and behind."""
    append, put = SqliteLog.append, SplitBlobs.put

    def noisy_append(self: SqliteLog, *args: object, **options: object):
        say(".")
        return append(self, *args, **options)  # type: ignore[arg-type]

    def noisy_put(self: SplitBlobs, data: bytes):
        say(".")
        return put(self, data)

    SqliteLog.append = noisy_append
    SplitBlobs.put = noisy_put


class Worker:
    """Everything that callers do to sessions, at random."""

    def __init__(self, sdk: CodeSDK, workspace: Path, chance: random.Random) -> None:
        self.sdk = sdk
        self.workspace = workspace
        self.chance = chance
        self.count = 0
        self.group: asyncio.TaskGroup | None = None

    async def work(self) -> None:
        """Go on with what is stored, and with new sessions. Ends only by force."""
        async with asyncio.TaskGroup() as self.group:
            rows = await self.sdk.sessions()
            for row in rows:
                if row.status == "open":
                    self.go(self.act(await self.sdk.session(row.session_id)))
                self.count += 1
            for index in range(self.count, FIRST_SESSIONS):
                self.go(self.create(SCRIPTS[index % len(SCRIPTS)]))

    def go(self, work) -> None:
        assert self.group is not None
        self.group.create_task(work)

    async def create(self, script: str) -> None:
        self.count += 1
        session = await self.sdk.create_session(
            runtime="scripted",
            workspace=self.workspace,
            permission_mode=self.chance.choice(["ask", "ask", "ask", "auto", "yolo"]),
            settings=SessionSettings(runtime_config={"script": script}, result_inline_bytes=2000),
        )
        say("session", session.id)
        await self.act(session)

    async def act(self, session: Session) -> None:
        """Watch a session and give it work without end."""
        live = await live_session(self.sdk.engine, session.id)
        self.go(self.watch(session, max(0, live.state.seq - self.chance.randrange(60))))
        await self.take_up(session)
        while True:
            await self.chance.choice([self.one, self.one, self.several, self.again, self.branch])(session)

    async def take_up(self, session: Session) -> None:
        """Answer what a crash left open, and resume."""
        for row in await self.sdk.archive.approvals(session_id=session.id):
            if row.state == "carried" and row.tool_call_id and self.chance.random() < 0.7:
                await self.answer(session, row.tool_call_id)
        try:
            task = await session.resume(self.chance.choice([None, "go on"]))
        except EXPECTED:
            return
        say("task", session.id, task.id)
        await self.end_of(session, task.id)

    async def one(self, session: Session) -> None:
        words = "say something " * self.chance.choice([1, 1, 40])
        task = await session.start(words, output_schema=self.chance.choice([None, SCHEMA]))
        say("task", session.id, task.id)
        await self.end_of(session, task.id)

    async def several(self, session: Session) -> None:
        """Queue tasks behind a running one, and take one out again."""
        tasks = [await session.start(f"part {n}") for n in range(3)]
        for task in tasks:
            say("task", session.id, task.id)
        if self.chance.random() < 0.5:
            await tasks[self.chance.randrange(3)].stop("not needed")
        for task in tasks:
            await self.end_of(session, task.id)

    async def again(self, session: Session) -> None:
        """Ask twice under one key: it must be one task."""
        key = f"key-{self.chance.getrandbits(40)}"
        first = await session.start("once", idempotency_key=key)
        second = await session.start("once", idempotency_key=key)
        if first.id != second.id:
            say("error", "one key, two tasks:", first.id, second.id)
        say("task", session.id, first.id)
        await self.end_of(session, first.id)

    async def branch(self, session: Session) -> None:
        """Fork the session somewhere in its past, while there are few."""
        if self.count < MAX_SESSIONS:
            self.count += 1
            live = await live_session(self.sdk.engine, session.id)
            fork = await session.fork(self.chance.randint(1, live.state.seq))
            say("session", fork.id)
            self.go(self.act(fork))
        await self.one(session)

    async def end_of(self, session: Session, task_id: str) -> None:
        async for event in session.task(task_id).events():
            if isinstance(event.payload, TaskFailed) and not event.payload.error.message.startswith(
                NO_RESULT
            ):
                say("error", "a task failed:", event.payload.error)

    async def watch(self, session: Session, after: int) -> None:
        """Report what a subscriber sees, and answer to it."""
        live = await live_session(self.sdk.engine, session.id)
        async for batch in follow(live, after):
            for item in batch:
                event = item.event
                say("event", session.id, event.seq, hashlib.sha256(item.frame).hexdigest())
                if event.trace.task_id == (live.state.task.task_id if live.state.task else ""):
                    self.react(session, event)

    def react(self, session: Session, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, ApprovalRequested) and payload.tool_call_id:
            if self.chance.random() < 0.7:  # else the question is left for the next life
                self.go(self.answer(session, payload.tool_call_id))
        elif isinstance(payload, OutputDelta) and payload.delta == "steer me":
            self.go(self.try_to(session.steer("this way")))
        elif isinstance(payload, OutputDelta) and payload.delta == "stop me":
            self.go(self.try_to(session.stop("enough", task_id=event.trace.task_id)))

    async def answer(self, session: Session, call_id: str) -> None:
        if self.chance.random() < 0.2:
            done = await self.try_to(session.deny(call_id, "rather not"))
        else:
            done = await self.try_to(session.approve(call_id))
        if done:
            say("answer", session.id, call_id)

    async def try_to(self, request) -> bool:
        try:
            await request
        except EXPECTED:
            return False
        return True


async def main() -> None:
    say("up")
    announce_writes()
    directory, workspace, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    async with CodeSDK.open(directory, allow_yolo=True) as sdk:
        say("open")
        await Worker(sdk, workspace, random.Random(seed)).work()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except BaseException:
        say("error", traceback.format_exc())
        raise
