"""A process with extensions that is killed at a moment that is told: see `test_restart` and `test_properties`.

kill_worker.py HOME MOMENT: one task whose call an extension approves.
kill_worker.py HOME PLAN: the tasks of a plan (JSON), killed at the n-th occurrence of a moment.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.extensions.histories import POLICY, Plan, work
from tests.extensions.rig import WRITES, Extensions, extended, session_in, settle

from codesdk.extensions import AgentEventEmitResult, Signal
from codesdk.extensions.actions import EngineActions
from codesdk.extensions.dispatch import Dispatcher
from codesdk.extensions.host import ExtensionHost
from codesdk.extensions.loading import Place
from codesdk.store.sqlite.log import SqliteLog


def die() -> None:
    """End as a process does that the kernel ends."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(moment: str) -> None:
    """Be killed before or after an event is dispatched, or before the cursor is stored."""
    dispatch, keep = ExtensionHost._dispatch, SqliteLog.keep_cursor

    async def dispatched(self: ExtensionHost, events: Any) -> None:
        concerned = any(event.type == "approval.requested" for event in events)
        if moment == "before" and concerned:
            die()
        await dispatch(self, events)
        if moment == "after" and concerned:
            die()

    async def kept(self: SqliteLog, subscriber: str, cursor: int) -> None:
        if moment == "cursor" and subscriber == "extensions" and cursor:
            die()
        await keep(self, subscriber, cursor)

    ExtensionHost._dispatch = dispatched
    SqliteLog.keep_cursor = kept


def follow(plan: Plan) -> None:
    """Be killed when the plan says so."""
    left = {plan.moment: plan.count}

    def at(moment: str) -> None:
        if moment in left:
            left[moment] -= 1
            if left[moment] < 0:
                die()

    def around(owner: type, name: str, before: str | None, after: str | None) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        async def wrapped(*args: Any, **options: Any) -> Any:
            if before is not None:
                at(before)
            found = await plain(*args, **options)
            if after is not None:
                at(after)
            return found

        setattr(owner, name, wrapped)

    around(Dispatcher, "emit", "event", "dispatched")
    around(Dispatcher, "_call", "call", "called")
    around(EngineActions, "execute", "action", "acted")
    around(ExtensionHost, "_replace", "reloading", "reloaded")
    keep = SqliteLog.keep_cursor

    async def kept(self: SqliteLog, subscriber: str, cursor: int) -> None:
        if subscriber == "extensions":
            at("keeping")
        await keep(self, subscriber, cursor)
        if subscriber == "extensions":
            at("kept")

    SqliteLog.keep_cursor = kept
    handle = Dispatcher._call

    async def interrupted(self: Dispatcher, place: Place, signal: Signal, won: bool) -> AgentEventEmitResult:
        """The n-th call is killed while its handler runs, or just before or after."""
        running = asyncio.ensure_future(handle(self, place, signal, won))
        await asyncio.sleep(0)
        at("calling")
        return await running

    Dispatcher._call = interrupted


async def approve_one(home: Path) -> None:
    async with extended(Extensions(home / "extensions"), home, stored=True) as sdk:
        session = await session_in(sdk, home)
        task = await session.start("Go.")
        await task.result()
        await settle(sdk)


async def live(home: Path, plan: Plan) -> None:
    ext = Extensions(home / "extensions", plan.hosting)
    async with (
        extended(ext, home, WRITES, policy=POLICY, stored=True) as sdk,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(work(sdk, home, plan.tasks))
        if plan.reloads:
            group.create_task(sdk.extensions.reload())


if __name__ == "__main__":
    if sys.argv[2].startswith("{"):
        told = msgspec.json.decode(sys.argv[2], type=Plan)
        follow(told)
        asyncio.run(live(Path(sys.argv[1]), told))
    else:
        die_at(sys.argv[2])
        asyncio.run(approve_one(Path(sys.argv[1])))
