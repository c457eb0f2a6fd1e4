"""`python -m tests.channel.killed DEATH FOLDER PROGRAM ARGS…`: an arbiter that kills itself at a moment that it is told.

What it starts and what it allows is in FOLDER before anything comes of it, for the test to compare.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from tests.channel.judges import Judge

from codesdk.channel import Arbiter, ArbiterLimits, Decided, Descriptor, Launch, ProcessRunner, process
from codesdk.cli.app import run

Moment = Literal["start", "started", "take", "taken", "decide", "say", "said", "write"]
TIMES: dict[Moment, int] = {
    "start": 1,
    "started": 1,
    "take": 5,
    "taken": 5,
    "decide": 3,
    "say": 3,
    "said": 3,
    "write": 3,
}
"""How often each comes before the last call of `programs.walks` waits: for ever, so that there is no later one."""


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """Who is killed, when, and over which program."""

    who: Literal["arbiter", "wrap"]
    moment: Moment
    nth: int
    program: Literal["walks", "outlives"]


def follow(death: Death, folder: Path) -> None:
    """Be killed at the n-th occurrence of a moment, and note what a program was and what it may do."""
    left = [death.nth]

    def at(moment: str) -> None:
        if moment == death.moment:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(name: str, before: str, after: str) -> None:
        plain: Callable[..., Any] = getattr(Arbiter, name)

        async def wrapped(*args: Any) -> Any:
            at(before)
            found = await plain(*args)
            at(after)
            return found

        setattr(Arbiter, name, wrapped)

    start, settle, encode = ProcessRunner.start_session, Arbiter._settle, process.encode

    async def started(self: ProcessRunner, launch: Launch) -> Any:
        session = await start(self, launch)
        (folder / "child").write_text(str(vars(session)["_process"].pid))
        return session

    def settled(self: Arbiter, call_id: str, decided: Decided) -> bool:
        with (folder / "allowed").open("a") as file:
            file.write(f"{call_id}\n" if decided.allow else "")
        return settle(self, call_id, decided)

    def written(command: Any) -> bytes:
        at("write")
        return encode(command)

    ProcessRunner.start_session = started
    Arbiter._settle = settled
    process.encode = written
    around("start_session", "start", "started")
    around("_take", "take", "taken")
    around("_decide", "decide", "decided")
    around("_say", "say", "said")


async def arbitrate(argv: list[str]) -> None:
    limits = ArbiterLimits()
    arbiter = Arbiter(ProcessRunner(Descriptor(1), Descriptor(2), limits), Judge(), limits)
    await arbiter.start_session(Launch(argv=argv))
    await arbiter.serve()


if __name__ == "__main__":
    told = msgspec.json.decode(sys.argv[1], type=Death)
    home = Path(sys.argv[2])
    follow(told, home)
    if told.who == "arbiter":
        asyncio.run(arbitrate(sys.argv[3:]))
    else:
        os.chdir(home)
        sys.exit(run(["wrap", "--interactive", "--policy", "policy.toml", "--", *sys.argv[3:]]))
