"""What clients saw and were told → compared with what a daemon left in its data directory."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.seen import Seen
from tests.crash.audited import is_audited

from codesdk.contract import actions as act, events as ev
from codesdk.contract.codec import decode
from codesdk.contract.messages import text_of
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.log.archive import Archive
from codesdk.local.directory import DataDir
from codesdk.store.audit.reading import read_audit

ALL = 1_000_000


async def stored_frames(data_dir: Path) -> dict[str, list[bytes]]:
    """Return what is stored, by session."""
    directory = await DataDir.open_reader(data_dir)
    try:
        archive, found = Archive(directory.log, directory.blobs), dict[str, list[bytes]]()
        for row in await archive.sessions(limit=ALL):
            stored = [frame async for frame in archive.frames(row.session_id)]
            assert [frame.seq for frame in stored] == list(range(1, len(stored) + 1))
            found[row.session_id] = [frame.data for frame in stored]
        return found
    finally:
        await directory.close()


def check_streams(seen: Seen, stored: dict[str, list[bytes]]) -> int:
    """Compare every event that was shown with the one that is stored. Return how many there were."""
    count = 0
    for session, frames in seen.frames.items():
        if session in seen.doomed and session not in stored:
            continue
        for seq, frame in frames.items():
            assert stored[session][seq - 1 : seq] == [frame], f"event {seq} of {session}"
            count += 1
    assert not seen.deleted & stored.keys(), "a deleted session is there again"
    return count


def check_decisions(seen: Seen, events: dict[str, list[ev.Event]]) -> None:
    """No attempt is decided twice, and whoever was told that its answer is recorded finds it so."""
    decided: dict[tuple[str, str], set[str]] = {}
    for session, log in events.items():
        decisions: Counter[tuple[str, int]] = Counter()
        for payload in (event.payload for event in log):
            if isinstance(payload, ev.ToolCallApproved | ev.ToolCallDenied):
                decisions[payload.tool_call_id, payload.attempt] += 1
                word = "approve" if isinstance(payload, ev.ToolCallApproved) else "deny"
                decided.setdefault((session, payload.tool_call_id), set()).add(word)
        assert set(decisions.values()) <= {1}, f"a call of {session} was decided twice"
        answers = Counter(e.payload.approval_id for e in log if isinstance(e.payload, ev.ApprovalAnswered))
        assert set(answers.values()) <= {1}, f"a question of {session} was answered twice"
        for call, word in _carried_answers(log):
            decided.setdefault((session, call), set()).add(word)
    for session, call, word in seen.answered:
        if session in events:
            assert word in decided.get((session, call), set()), f"{word} of {call} in {session} is not there"


def _carried_answers(log: list[ev.Event]) -> list[tuple[str, str]]:
    """Return the calls that were answered after a crash: nothing is decided before the session is resumed."""
    carried = {
        e.payload.approval_id: e.payload.tool_call_id
        for e in log
        if isinstance(e.payload, ev.ApprovalCarried)
    }
    answers = [e.payload for e in log if isinstance(e.payload, ev.ApprovalAnswered)]
    return [(carried[a.approval_id], a.decision) for a in answers if a.approval_id in carried]


_ONCE: tuple[type[act.Action[Any]], ...] = (
    act.CreateSession,
    act.ForkSession,
    act.StartTask,
    act.SteerTask,
    act.ChangeSettings,
)
"""Actions whose effect is in the log if they were carried out. The others may have had nothing to do."""


def check_keys(seen: Seen, events: dict[str, list[ev.Event]]) -> int:
    """Each word that was tried is found once at most, and once if a client was answered. Return how many were."""
    found = {place for session, log in events.items() for event in log for place in _places(session, event)}
    counts = Counter(word for word, _ in found)
    twice = sorted((word, place) for word, place in found if counts[word] > 1 and _is_once(seen, word))
    assert twice == [], "\n".join(
        f"{seen.tried[word.rpartition(' ')[2]]!r} is at {place}" for word, place in twice
    )
    for word, kept in seen.kept.items():
        if isinstance(kept.action, _ONCE) and kept.session_id in events:
            assert counts[word] == 1, f"{type(kept.action).__name__} {word} of {kept.session_id} is not there"
    return len(seen.kept)


def _is_once(seen: Seen, word: str) -> bool:
    """Return whether a word stands for an effect that its request has once, however often it is repeated.

    A close waits for the end of the task that it stops. One that is killed meanwhile was not carried out, and
    stops what was started since when it is repeated; the session is closed once.
    """
    verb, _, key = word.rpartition(" ")
    return key in seen.tried and not (verb and isinstance(seen.tried[key], act.CloseSession))


def _places(session: str, event: ev.Event) -> list[tuple[str, str]]:
    """Return the words of an event, each with what it stands at: a task, or the event."""
    payload, here = event.payload, f"{session} {event.seq}"
    if isinstance(payload, ev.TaskStopRequested):  # a close stops the task first, in the same words
        return [(f"stop {payload.reason}", here)]
    if isinstance(payload, ev.SessionCreated):
        return [(payload.title or "", here)]
    if isinstance(payload, ev.TaskQueued):
        return [(word, payload.task_id) for word in _said(payload.messages)]
    if isinstance(payload, ev.TaskStarted):
        return [(word, event.trace.task_id or "") for word in _said(payload.messages)]
    if isinstance(payload, ev.TaskSteered):
        return [(word, here) for word in _said(payload.messages)]
    if isinstance(payload, ev.SettingsChanged):
        return [(word, here) for word in payload.values or {}]
    if isinstance(payload, ev.SessionClosed | ev.ApprovalAnswered):
        return [(payload.reason or "", here)]
    return []


def _said(messages: list[Any]) -> list[str]:
    return [text_of(message.content).rpartition(" ")[2] for message in messages]


def check_audit(data_dir: Path, events: dict[str, list[ev.Event]]) -> int:
    """Each event that the audit is about has one record, in the order of its session. Return how many."""
    recorded: dict[str, list[int]] = {session: [] for session in events}
    for record in read_audit(data_dir / "audit"):
        if "seq" in record.what and record.what["session_id"] in recorded:
            recorded[record.what["session_id"]].append(record.what["seq"])
    told = {session: [event.seq for event in log if is_audited(event)] for session, log in events.items()}
    assert recorded == told
    return sum(map(len, told.values()))


async def check_replays(data_dir: Path) -> None:
    """Every log, played through a fresh engine, gives the same events."""
    directory = await DataDir.open_reader(data_dir)
    try:
        for row in await Archive(directory.log, directory.blobs).sessions(limit=ALL):
            found = await replay_session(directory.log, directory.blobs, row.session_id)
            assert found[1] == [], row.session_id
    finally:
        await directory.close()


def check_with_commands(data_dir: Path) -> None:
    """`codesdk verify --all` and `codesdk audit --verify`, as an operator would."""
    verified = codesdk(data_dir, "verify", "--all", "--json")
    found = [json.loads(line) for line in verified.stdout.splitlines()]
    wrong = [report for report in found if not report.get("ok") or report.get("interrupted")]
    assert wrong == [], json.dumps(wrong)[:3000]
    audited = codesdk(data_dir, "audit", "--verify")
    for ran in (verified, audited):
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


def codesdk(data_dir: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line on a data directory that nobody holds."""
    argv = [sys.executable, "-m", "codesdk.cli.main", "--data-dir", str(data_dir), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def decoded(stored: dict[str, list[bytes]]) -> dict[str, list[ev.Event]]:
    """Return the stored events."""
    return {session: [decode(frame) for frame in frames] for session, frames in stored.items()}
