"""What clients were shown and told, over all lives of a daemon: the promises that its log is compared with."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from codesdk.contract.actions import Action, MoveSession
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event, TaskFailed

ORDINARY = frozenset({"CONFLICT", "NOT_FOUND", "SESSION_BUSY", "QUEUE_FULL", "OVERLOADED"})
"""Refusals that clients who act at once on the same sessions must expect, and a daemon that is away."""


class Kept(NamedTuple):
    """An action that was carried out under a key, and its answer."""

    action: Action[Any]
    answer: Any
    session_id: str


class Answered(NamedTuple):
    """An answer to a call that a client was told is recorded."""

    session_id: str
    tool_call_id: str
    decision: str


class Seen:
    """Shared by all clients of a run."""

    def __init__(self) -> None:
        self.frames: dict[str, dict[int, bytes]] = {}
        self.kept: dict[str, Kept] = {}
        self.tried: dict[str, Action[Any]] = {}
        """Every action with a key, also those of which nobody knows whether they were carried out."""
        self.answered: list[Answered] = []
        self.raced = 0
        """Answers that were sent beside another one to the same call."""
        self.compared = 0
        """Events that a second client saw as well."""
        self.repeated = 0
        self.refusals: Counter[str] = Counter()
        self.wrong: list[str] = []
        """What must not be. Empty, or the run fails."""
        self.tolerated: frozenset[str] = frozenset()
        """Codes that the present fault explains."""
        self.sessions: dict[str, str] = {}
        """Open sessions and their runtime."""
        self.doomed: set[str] = set()
        """Sessions that somebody has tried to delete, and those of which it was told that they are gone."""
        self.deleted: set[str] = set()
        self.ends: Counter[str] = Counter()
        self._goal = 0
        self._reached = asyncio.Event()
        self.total = 0

    def show(self, session_id: str, seq: int, frame: bytes) -> bool:
        """Note that a client saw an event. Return whether it was the first to see it."""
        self.total += 1
        if self.total >= self._goal:
            self._reached.set()
        frames = self.frames.setdefault(session_id, {})
        if (known := frames.setdefault(seq, frame)) is not frame:
            self.compared += 1
            if known != frame:
                self.wrong.append(f"event {seq} of {session_id} was shown with two contents")
            return False
        return True

    def refuse(self, error: CodeSDKError, action: object) -> None:
        """Note a refusal, which must be an ordinary one or explained by the present fault."""
        self.refusals[error.code] += 1
        moved = (
            isinstance(action, MoveSession) and error.code == "INVALID_REQUEST"
        )  # by somebody else, just now
        if error.code not in ORDINARY | self.tolerated and not moved:
            self.wrong.append(f"{type(action).__name__} was refused with {error.code}: {error.message}")

    def keep(self, key: str, action: Action[Any], answer: Any, session_id: str) -> None:
        """Note what an action under a key was answered. It must be what it was answered before."""
        if key not in self.kept:
            self.kept[key] = Kept(action, answer, session_id)
            return
        self.repeated += 1
        if (known := self.kept[key].answer) != answer:
            self.wrong.append(f"{type(action).__name__} again: {answer}, not {known}")

    def end(self, event: Event) -> None:
        """Note how a task ended. A bug of ours is no way to end."""
        payload = event.payload
        code = payload.error.code if isinstance(payload, TaskFailed) else ""
        self.ends[f"{event.type} {code}".rstrip()] += 1
        # What failed for want of memory may be read long after there was enough again.
        if (
            isinstance(payload, TaskFailed)
            and code == "INTERNAL"
            and "MemoryError" not in payload.error.message
        ):
            self.wrong.append(f"{event.trace.task_id} failed: {payload.error.message}")

    async def more(self, events: int, within_s: float) -> bool:
        """Wait until clients saw so many more events. Return false if that takes too long."""
        self._goal = self.total + events
        self._reached.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._reached.wait()
        except TimeoutError:
            return False
        return True
