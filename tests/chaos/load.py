"""Clients of one daemon that do everything at once to the same sessions, drawn by chance from a seed.

Each is a `CodeSDKClient` with its own connections. What they see and are told goes into `Seen`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.chaos.seen import Answered, Kept, Seen
from tests.chaos.verbs import STEER, STOP, Verbs

from codesdk.client import CodeSDKClient
from codesdk.contract import actions as act
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import TERMINAL_TYPES, ApprovalRequested, Event, OutputDelta

CLIENTS = 4
OPEN_SESSIONS = 10
READERS = 2
"""Clients that follow the same session, and must see the same."""
PAUSE_S = 0.1


class Load:
    """The clients, and what they do until told to stop."""

    def __init__(self, workspace: Path, seed: int, seen: Seen, runtimes: tuple[str, ...]) -> None:
        self.seen = seen
        self._chance = random.Random(seed)
        self._verbs = Verbs(self._chance, workspace, runtimes)
        self._clients: list[CodeSDKClient] = []
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._equipped: set[str] = set()
        self._repeating: dict[str, int] = {}
        verbs = self._verbs
        self._weights: dict[Callable[[CodeSDKClient], Awaitable[object]], int] = {
            self._run: 20,
            self._answer_what_waits: 6,
            self._repeat: 6,
            self._act_with(verbs.stop): 3,
            self._act_with(verbs.set): 3,
            self._act_with(verbs.undo): 2,
            self._act_with(verbs.compact): 2,
            self._move: 4,
            self._fork: 2,
            self._close: 1,
            self._delete: 1,
        }

    @asynccontextmanager
    async def running(self, data_dir: Path) -> AsyncGenerator[None]:
        """Work as long as the block lasts; then hang up."""
        async with AsyncExitStack() as stack:
            for _ in range(CLIENTS):
                connecting = CodeSDKClient.connect(data_dir=data_dir)
                self._clients.append(await stack.enter_async_context(connecting))
            async with asyncio.TaskGroup() as self._group:
                for client in self._clients:
                    self._spawn(self._work(client))
                try:
                    yield
                finally:
                    for task in self._tasks:
                        task.cancel()

    def restarted(self) -> None:
        """Note that the daemon has another life, in which sessions have to be equipped again."""
        self._equipped.clear()

    async def repeat_all(self, data_dir: Path, count: int) -> None:
        """Repeat some of what was done under a key, with a client of its own: each answer must be the same."""
        keys = [key for key, kept in self.seen.kept.items() if self._may_repeat(kept)]
        async with CodeSDKClient.connect(data_dir=data_dir) as client:
            for key in self._chance.sample(keys, min(count, len(keys))):
                await self._execute(client, self.seen.kept[key].action, key)

    # --- what a client does --------------------------------------------------------------------------------

    async def _work(self, client: CodeSDKClient) -> None:
        while True:
            if len(self.seen.sessions) < OPEN_SESSIONS:
                await self._create(client)
            (do,) = self._chance.choices([*self._weights], [*self._weights.values()])
            await do(client)

    async def _execute(self, client: CodeSDKClient, action: act.Action[Any], key: str) -> tuple[bool, Any]:
        """Let the daemon do something once. Return whether it did, and its answer."""
        self.seen.tried.setdefault(key, action)
        try:
            answer = await client.service.execute(action, key=key)
        except CodeSDKError as error:
            self.seen.refuse(error, action)
            if error.code != "CONFLICT":
                await asyncio.sleep(PAUSE_S)  # as a person would, and not ask a full disk a thousand times
            return False, None
        born = isinstance(action, act.CreateSession | act.ForkSession)
        self.seen.keep(key, action, answer, answer.session_id if born else getattr(action, "session_id", ""))
        return True, answer

    def _act_with(
        self, verb: Callable[[str, str], act.Action[Any]]
    ) -> Callable[[CodeSDKClient], Awaitable[None]]:
        async def do(client: CodeSDKClient) -> None:
            if (session := self._session()) is not None:
                word = self._word()
                await self._execute(client, verb(session, word), word)

        return do

    async def _create(self, client: CodeSDKClient) -> None:
        word = self._word()
        done, row = await self._execute(client, self._verbs.create(word), word)
        if done:
            self._equipped.add(row.session_id)
            self._adopt(row.session_id, row.runtime)

    async def _run(self, client: CodeSDKClient) -> None:
        """Start a task, or go on with an interrupted one."""
        if (session := self._session()) is not None:
            await self._equip(client, session)
            word, verb = self._word(), self._chance.choice([self._verbs.start, self._verbs.resume])
            await self._execute(client, verb(session, word), word)

    async def _equip(self, client: CodeSDKClient, session: str) -> None:
        """Give a session again what a restart took from it."""
        script = self._verbs.for_programs
        if script is not None and session not in self._equipped:
            self._equipped.add(session)
            await self._execute(client, act.EquipSession(session_id=session, script=script), self._word())

    async def _fork(self, client: CodeSDKClient) -> None:
        if (session := self._session()) is not None:
            word = self._word()
            done, row = await self._execute(client, self._verbs.fork(session, word), word)
            if done:
                self._adopt(row.session_id, row.runtime)

    async def _move(self, client: CodeSDKClient) -> None:
        if (session := self._session()) is None:
            return
        word = self._word()
        action = self._verbs.move(session, word, self.seen.sessions[session])
        done, row = await self._execute(client, action, word)
        if done and session in self.seen.sessions:
            self.seen.sessions[session] = row.runtime

    async def _close(self, client: CodeSDKClient) -> str | None:
        if (session := self._session()) is None:
            return None
        del self.seen.sessions[session]
        word = self._word()
        await self._execute(client, self._verbs.close(session, word), word)
        return session

    async def _delete(self, client: CodeSDKClient) -> None:
        session = await self._close(client)
        # With a session go its keys: a request that is repeated meanwhile would be carried out again.
        if session is None or self._repeating.get(session):
            return
        self.seen.doomed.add(session)
        action = act.DeleteSession(session_id=session)
        done, _ = await self._execute(client, action, self._word())
        if done:
            self.seen.deleted.add(session)

    async def _repeat(self, client: CodeSDKClient) -> None:
        """Repeat a request under its key, perhaps one of an earlier life."""
        if not self.seen.kept:
            return
        key = self._chance.choice([*self.seen.kept][-200:])
        kept = self.seen.kept[key]
        if not self._may_repeat(kept):
            return
        self._repeating[kept.session_id] = self._repeating.get(kept.session_id, 0) + 1
        try:
            await self._execute(client, kept.action, key)
        finally:
            self._repeating[kept.session_id] -= 1

    def _may_repeat(self, kept: Kept) -> bool:
        """Return whether the key of a request is still known: it ends with its session, and some with the process."""
        return kept.session_id not in self.seen.doomed and type(kept.action).lasts

    async def _answer_what_waits(self, client: CodeSDKClient) -> None:
        """Answer a question that nobody has answered yet, perhaps one that a crash left."""
        try:
            waiting = [row for row in await client.approvals() if row.tool_call_id]
        except CodeSDKError as error:
            self.seen.refuse(error, "approvals")
            return
        if waiting:
            row = self._chance.choice(waiting)
            assert row.tool_call_id is not None
            self._race(row.session_id, row.tool_call_id)

    def _race(self, session: str, call: str) -> None:
        """Let one or several clients answer the same call at once, each as it likes."""
        clients = self._chance.sample(self._clients, self._chance.choice([1, 2, 3]))
        self.seen.raced += len(clients) if len(clients) > 1 else 0
        for client in clients:
            self._spawn(self._answer(client, session, call))

    async def _answer(self, client: CodeSDKClient, session: str, call: str) -> None:
        word = self._word()
        action = self._verbs.answer(session, call, word)
        done, _ = await self._execute(client, action, word)
        if done:
            approved = isinstance(action, act.ApproveCall)
            self.seen.answered.append(Answered(session, call, "approve" if approved else "deny"))

    # --- what a client sees --------------------------------------------------------------------------------

    def _adopt(self, session: str, runtime: str) -> None:
        if session not in self.seen.sessions:
            self.seen.sessions[session] = runtime
            for client in self._chance.sample(self._clients, READERS):
                self._spawn(self._watch(client, session))

    async def _watch(self, client: CodeSDKClient, session: str) -> None:
        """Follow a session to its end, over all lives of the daemon."""
        seq = 0
        while True:
            try:
                async with aclosing(client.service.follow(session, seq)) as batches:
                    async for batch in batches:
                        for item in batch:
                            if item.seq != seq + 1:
                                self.seen.wrong.append(f"{session}: event {item.seq} came behind {seq}")
                            seq = item.seq
                            if self.seen.show(session, seq, item.frame):
                                self._react(session, item.event)
                            if item.event.type == "session.closed":
                                return
            except CodeSDKError as error:
                self.seen.refuse(error, "follow")
                if error.code == "NOT_FOUND":
                    return
                await asyncio.sleep(PAUSE_S)

    def _react(self, session: str, event: Event) -> None:
        payload, word = event.payload, self._word()
        if event.type in TERMINAL_TYPES:
            self.seen.end(event)
        elif isinstance(payload, ApprovalRequested) and payload.tool_call_id:
            if self._chance.random() < 0.7:  # else the question waits, perhaps for the next life
                self._race(session, payload.tool_call_id)
        elif isinstance(payload, OutputDelta) and payload.delta in (STEER, STOP):
            verb = self._verbs.steer if payload.delta == STEER else self._verbs.stop
            client = self._chance.choice(self._clients)
            self._spawn(self._execute_only(client, verb(session, word), word))

    async def _execute_only(self, client: CodeSDKClient, action: act.Action[Any], word: str) -> None:
        await self._execute(client, action, word)

    # --- inside --------------------------------------------------------------------------------------------

    def _word(self) -> str:
        """Return a word that is used once: the key of a request, and what to find its effect by."""
        return f"word{self._chance.getrandbits(64):016x}"

    def _session(self) -> str | None:
        return self._chance.choice([*self.seen.sessions]) if self.seen.sessions else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
