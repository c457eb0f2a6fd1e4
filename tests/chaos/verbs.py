"""A session and a word → an action that a client may ask for, with the word where its effect can be found in the log."""

import random
from pathlib import Path
from typing import Any

from codesdk.contract import actions as act
from codesdk.contract.settings import SessionSettings

STEER, STOP = "steer me", "stop me"
"""What a script says to the clients that read it."""


def edit(old: str, new: str) -> dict[str, Any]:
    return {"call": {"tool": "workspace.edit", "input": {"path": "small.txt", "old": old, "new": new}}}


def read(path: str) -> dict[str, Any]:
    return {"call": {"tool": "workspace.read", "input": {"path": path}}}


def write(path: str, content: str) -> dict[str, Any]:
    return {"call": {"tool": "workspace.write", "input": {"path": path, "content": content}}}


def looped(*turns: list[Any]) -> dict[str, Any]:
    """Return a script whose first turn follows its last."""
    return {"loop": True, "turns": [{"steps": steps} for steps in turns]}


SCRIPTS = (
    looped(
        [{"text": ["look", "ing"]}, read("small.txt"), read("missing.txt"), edit("one", "two")],
        [edit("two", "one"), {"burst": {"count": 20}}],
        [{"burst": {"count": 40}}, {"text": "done"}],
    ),
    looped(
        [write("made.txt", "a" * 3000), write("other.txt", "b")],
        [{"burst": {"count": 10, "size": 300}}, write("made.txt", "c")],
        [{"reasoning": "hm"}, {"text": "done"}],
    ),
    looped(
        [{"text": ["hello", STEER]}, {"await_steer": True}, {"burst": {"count": 25}}],
        [{"burst": {"count": 10}}, {"text": ["hm", STOP]}, {"stall": "stopped"}],
    ),
    looped([{"burst": {"count": 200}}, read("large.txt")], [{"text": "done"}]),
)
"""With calls to be approved, to be steered and stopped, and much to read."""
FOR_PROGRAMS = looped(
    [{"text": ["look", "ing"]}, read("small.txt"), write("made.txt", "x")],
    [{"text": ["one ", "two ", "three"]}, {"delay_s": 0.3}, {"text": "done"}],
)
"""What the gateway plays to a program as its model."""


def fill_workspace(path: Path) -> None:
    """Make the files that the scripts are about."""
    path.mkdir()
    (path / "small.txt").write_text("one\n")
    (path / "large.txt").write_text("".join(f"line {n}\n" for n in range(500)))


class Verbs:
    """Draws what an action leaves open. `runtimes` are those that sessions are made with and move between."""

    def __init__(self, chance: random.Random, workspace: Path, runtimes: tuple[str, ...]) -> None:
        self._chance = chance
        self._workspace = str(workspace)
        self._runtimes = runtimes

    @property
    def for_programs(self) -> dict[str, Any] | None:
        """What sessions play to a program; None if there is none among the runtimes."""
        return FOR_PROGRAMS if "codex-sdk" in self._runtimes else None

    def create(self, word: str) -> act.CreateSession:
        script = self._chance.choice(SCRIPTS)
        return act.CreateSession(
            runtime=self._chance.choice(self._runtimes),
            workspace=self._workspace,
            title=word,
            permission_mode=self._chance.choice(["ask", "ask", "auto"]),
            settings=SessionSettings(runtime_config={"script": script}, result_inline_bytes=2000),
            script=self.for_programs,
        )

    def start(self, session: str, word: str) -> act.StartTask:
        busy: Any = self._chance.choice(["queue", "queue", "reject", "steer"])
        return act.StartTask(session_id=session, message=f"do {word}", on_busy=busy)

    def resume(self, session: str, word: str) -> act.ResumeSession:
        return act.ResumeSession(session_id=session, message=self._chance.choice([None, f"on {word}"]))

    def steer(self, session: str, word: str) -> act.SteerTask:
        return act.SteerTask(session_id=session, message=f"this way {word}")

    def stop(self, session: str, word: str) -> act.StopTask:
        return act.StopTask(session_id=session, reason=word)

    def set(self, session: str, word: str) -> act.ChangeSettings:
        mode: Any = self._chance.choice(["ask", "auto"])
        return act.ChangeSettings(session_id=session, permission_mode=mode, values={word: True})

    def fork(self, session: str, word: str) -> act.ForkSession:
        return act.ForkSession(session_id=session, title=word)

    def move(self, session: str, word: str, runtime: str) -> act.MoveSession:
        others = [name for name in self._runtimes if name != runtime]
        return act.MoveSession(session_id=session, runtime=self._chance.choice(others), model=word)

    def compact(self, session: str, word: str) -> act.CompactSession:
        return act.CompactSession(session_id=session, keep_tokens=self._chance.choice([0, 300, None]))

    def undo(self, session: str, word: str) -> act.UndoChanges:
        return act.UndoChanges(session_id=session)

    def close(self, session: str, word: str) -> act.CloseSession:
        return act.CloseSession(session_id=session, reason=word)

    def answer(self, session: str, call: str, word: str) -> act.ApproveCall | act.DenyCall:
        if self._chance.random() < 0.4:
            return act.DenyCall(session_id=session, tool_call_id=call, reason=word)
        scope: Any = self._chance.choice(["once", "once", "session"])
        return act.ApproveCall(session_id=session, tool_call_id=call, reason=word, scope=scope)
