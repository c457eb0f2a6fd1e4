"""`ChaosRuntime`: a runtime that misbehaves in every way an adapter can, the same way for the same seed.

For tests of whether an application, or the engine, survives a bad runtime.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Literal, cast, get_args

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.messages import Message
from codesdk.contract.runtime import Finished, Host, RuntimeEnv, RuntimeItem, TaskInput, ToolReply
from codesdk.contract.tools import ToolIdentity
from codesdk.testing.fakes import FAKE_CAPABILITIES
from codesdk.testing.nonsense import Nonsense

Misdeed = Literal[
    "crash",  # the stream raises
    "vanish",  # the stream ends without saying so
    "stall",  # the stream says nothing more until the task is closed
    "endless",  # the stream never ends; such a task has to be stopped
    "late_events",  # the stream goes on after a stop
    "stubborn",  # the stream ignores being cancelled, and ends only when closed
    "malformed",  # items that are not items
    "wrong_types",  # items with fields of the wrong type
    "forged",  # events that only the engine may write
    "duplicate_ids",  # the same call or message again
    "burst",  # hundreds of deltas at once
    "huge",  # very large items
    "bad_calls",  # unknown tools, bad inputs
    "refuse_start",  # from here on: the method raises, or never returns
    "refuse_result",
    "refuse_denial",
    "refuse_steer",
    "refuse_stop",
    "refuse_close",
    "refuse_close_session",
]
MISDEEDS: tuple[Misdeed, ...] = get_args(Misdeed)

CHAOS_CAPABILITIES = msgspec.structs.replace(
    FAKE_CAPABILITIES,
    supports_session_resume=False,
    supports_artifacts=False,
    supports_images=False,
    resume_model="none",
    tool_replay_safety="unknown",
    cancellation_model="unknown",
)
"""What it claims to be able to do. Whether it does is another matter."""

_ENDS: tuple[Misdeed, ...] = ("crash", "vanish", "stall", "endless")
_REFUSE_CHANCE = 0.12
_RAISE = "raise"
_HANG = "hang"


class ChaosRuntime:
    """A `Runtime` whose tasks say up to `steps` things, good ones and the given `misdeeds`, at random.

    What a task does depends on the seed and on how many were started before it. `tasks` holds the
    handles; the `did` of each lists what it has done, for the message of a failing test;
    `refused_to_close` names the sessions that it refused to close. Give sessions small timeouts:
    a stalled task ends after `idle_timeout_s`, a refused method after `start_timeout_s`
    or `stop_grace_s`, and an endless one only when it is stopped.
    """

    def __init__(
        self,
        seed: int | str,
        *,
        misdeeds: Iterable[Misdeed] = MISDEEDS,
        steps: int = 12,
        name: str = "chaos",
    ) -> None:
        self.name = name
        self.seed = seed
        self.tasks: list[ChaosTask] = []
        self.refused_to_close: list[str] = []
        self._misdeeds = frozenset(misdeeds)
        self._steps = steps
        self._started = 0
        self._closing = Random(f"{seed}/close")

    def capabilities(self) -> Capabilities:
        return CHAOS_CAPABILITIES

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=True)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=False, auth_model="none")

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        return LoginOutcome(logged_in=False, problem="There is no account to log in to.")

    async def start_task(self, host: Host, task: TaskInput) -> "ChaosTask":
        # Each task draws from its own generator: what one does must not depend on when others draw.
        rng = Random(f"{self.seed}/{self._started}")
        self._started += 1
        handle = ChaosTask(rng, task, self._misdeeds, self._steps)
        self.tasks.append(handle)
        await handle.misbehave("refuse_start")
        return handle

    async def close_session(self, session_id: str) -> None:
        if "refuse_close_session" in self._misdeeds and self._closing.random() < 0.3:
            self.refused_to_close.append(session_id)
            await _refuse(self._closing.choice((_RAISE, _HANG)), RuntimeError("chaos"))


class ChaosTask:
    """One task of a `ChaosRuntime`."""

    def __init__(self, rng: Random, given: TaskInput, misdeeds: frozenset[Misdeed], steps: int) -> None:
        self.did: list[str] = []
        self._rng = rng
        self._say = Nonsense(rng, [tool.name for tool in given.tools])
        self._refusals = _refusals(rng, misdeeds, self._say)
        self._ending = rng.choice(("end", "end", "end", *sorted(misdeeds.intersection(_ENDS))))
        self._late = "late_events" in misdeeds and rng.random() < 0.3
        self._stubborn = "stubborn" in misdeeds and rng.random() < 0.2
        say = self._say
        self._make: dict[str, Callable[[], Sequence[Any]]] = {
            "good": say.good,
            "call": say.call,
            "malformed": say.malformed,
            "wrong_types": say.wrong_types,
            "forged": say.forged,
            "duplicate_ids": say.duplicate,
            "burst": say.burst,
            "huge": say.huge,
            "bad_calls": say.bad_call,
            "end": say.end,
        }
        self._acts: Sequence[str] = sorted(misdeeds.intersection(self._make))
        self._steps = rng.randint(0, steps)
        self._replies: set[str | None] = set()
        self._stopping = False
        self._closed = False
        self._change = asyncio.Event()

    def events(self) -> AsyncGenerator[RuntimeItem, None]:
        """Return the stream. Not a generator itself, so that the call can raise before the first item."""
        if self._ending == "crash" and self._rng.random() < 0.2:
            self.did.append("crash at once")
            raise RuntimeError("chaos")
        return self._stream()

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        await self._take(call, "refuse_result")

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        await self._take(call, "refuse_denial")

    async def steer(self, messages: Sequence[Message]) -> None:
        await self.misbehave("refuse_steer")

    async def stop(self, reason: str) -> None:
        await self.misbehave("refuse_stop")
        self._stopping = True
        self._change.set()

    async def close(self) -> None:
        self._closed = True
        self._change.set()
        await self.misbehave("refuse_close")

    async def misbehave(self, what: Misdeed) -> None:
        """Raise or hang, if this task does so here."""
        if what in self._refusals:
            how, error = self._refusals[what]
            self.did.append(f"{what}: {how}")
            await _refuse(how, error)

    async def _take(self, call: ToolIdentity, refusal: Misdeed) -> None:
        await self.misbehave(refusal)
        self._replies.add(call.runtime_tool_call_id or call.tool_call_id)
        self._change.set()

    async def _stream(self) -> AsyncGenerator[RuntimeItem, None]:
        for act in self._plan():
            for item in self._make[act]() if act in self._make else ():
                yield cast("RuntimeItem", item)
                if self._closed or (self._stopping and not self._late):
                    break
            if act == "call" and self._rng.random() < 0.8:
                await self._until(lambda: self._replies.issuperset(self._say.call_ids))
            if act == "crash":
                raise self._say.error()
            if act == "stall":
                await self._until(lambda: False)
            if self._closed or act == "vanish":
                return
            if self._stopping and not self._late:
                break
            if self._stopping and "late_events" not in self.did:
                self.did.append("late_events")
        yield Finished(stop_reason="stopped")

    def _plan(self) -> Iterator[str]:
        for _ in range(self._steps):
            if self._acts and self._rng.random() < 0.4:
                act = self._rng.choice(self._acts)
            else:
                act = self._rng.choice(("good", "good", "call"))
            self.did.append(act)
            yield act
        self.did.append(self._ending)
        while self._ending == "endless":
            yield "good"
        yield self._ending

    async def _until(self, met: Callable[[], bool]) -> None:
        """Wait for a condition, a stop or the close of the task."""
        while not met() and not self._closed and (self._late or not self._stopping):
            self._change.clear()
            try:
                await self._change.wait()
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
                self.did.append("stubborn: went on")


def _refusals(
    rng: Random, misdeeds: frozenset[Misdeed], say: Nonsense
) -> dict[str, tuple[str, BaseException]]:
    """Return which methods refuse, how, and with which error."""
    methods = [misdeed for misdeed in MISDEEDS if misdeed.startswith("refuse_") and misdeed in misdeeds]
    return {
        method: (rng.choice((_RAISE, _HANG)), say.error())
        for method in methods
        if rng.random() < _REFUSE_CHANCE
    }


async def _refuse(how: str, error: BaseException) -> None:
    if how == _RAISE:
        raise error
    await asyncio.Event().wait()
