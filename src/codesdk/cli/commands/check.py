"""`codesdk verify` and `codesdk replay`: stored logs → the problems found in them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK, UNRECOVERED
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import all_sessions, find_session
from codesdk.cli.target.place import connected, reading, runner
from codesdk.cli.view.gist import plural
from codesdk.cli.view.out import write_json, write_line, write_mark, write_text
from codesdk.cli.view.safe import one_line
from codesdk.contract.ports import EventLog
from codesdk.contract.records import StoredFrame
from codesdk.contract.service import SessionReader

if TYPE_CHECKING:
    from codesdk.client import HttpService
    from codesdk.engine import Archive

PATIENCE_S = 0.5  # a check that takes less shows no progress
REFRESH_S = 0.1

Kind = Literal["verify", "replay"]


class Checked(NamedTuple):
    """How many events were checked, and the problems: structs or mappings with `seq` and `message`."""

    events: int
    found: Sequence[Any]
    interrupted: bool = False
    """Whether nothing is wrong, but the last task was interrupted and is not closed yet."""


Check = Callable[[str], Awaitable[Checked]]


class Words(NamedTuple):
    """What a kind of check is called in progress, in JSON, and when all is well."""

    done: str
    listed: str
    good: str


_WORDS: dict[Kind, Words] = {
    "verify": Words("checked", "findings", "all nine invariants hold"),
    "replay": Words("replayed", "differences", "replayed bit for bit"),
}


@click.command()
@session_argument(required=False)
@click.option("--all", "every", is_flag=True, help="Check all sessions.")
@json_option("Print one result per session as JSON.")
@click.pass_obj
def verify(setup: Setup, session: str | None, every: bool, as_json: bool) -> int:
    """Check a stored log against the contract's nine invariants.

    Exits 1 if one is broken, and 7 if all hold but an interrupted session has not been recovered yet, which the next
    run in its directory does.
    """
    if every == (session is not None):
        raise click.UsageError("Name a session, or use --all.")
    return run_async(_check(setup, session, "verify", as_json))


@click.command()
@session_argument()
@json_option("Print the result as JSON.")
@click.pass_obj
def replay(setup: Setup, session: str, as_json: bool) -> int:
    """Play a stored log through a fresh engine. Exits 1 unless the same events come out, bit for bit."""
    return run_async(_check(setup, session, "replay", as_json))


async def _check(setup: Setup, given: str | None, kind: Kind, as_json: bool) -> int:
    code = OK
    async with _checker(setup, kind) as (archive, check):
        for session_id in await _chosen(archive, given):
            checked = await check(session_id)
            if checked.found:
                code = FAILED
            elif checked.interrupted and code == OK:
                code = UNRECOVERED
            _show(session_id, kind, checked, as_json)
    return code


def _show(session_id: str, kind: Kind, checked: Checked, as_json: bool) -> None:
    """Write what a check found."""
    events, found, words = checked.events, checked.found, _WORDS[kind]
    if as_json:
        outcome: dict[str, Any] = {"session_id": session_id, "ok": not found, "events": events}
        if kind == "verify":
            outcome["interrupted"] = checked.interrupted
        write_json({**outcome, words.listed: found})
    elif found:
        write_mark(False, f"{session_id}: {plural(len(found), 'problem')}")
    elif checked.interrupted:
        write_mark(
            None,
            f"{session_id}: {events:,} events, {words.good} so far; its last task was interrupted and is not"
            " closed yet. The next run in this data directory closes it, then it can be resumed.",
        )
    else:
        write_mark(True, f"{session_id}: {events:,} events, {words.good}")
    for each in () if as_json else found:
        write_line(f"  {one_line(_line(**msgspec.to_builtins(each)))}")


@asynccontextmanager
async def _checker(setup: Setup, kind: Kind) -> AsyncGenerator[tuple[SessionReader, Check]]:
    """Yield the sessions and a check for one of them: by the daemon that is named, or here on its data."""
    if setup.url is None:
        async with reading(setup.data_dir) as archive:
            owned = await runner(setup) != "nobody"
            path = Path(setup.data_dir)
            yield archive, lambda session_id: _check_here(archive, path, session_id, kind, running=owned)
        return
    async with connected(setup) as client:
        yield client.daemon, lambda session_id: _check_there(client.daemon, session_id, kind)


async def _check_here(
    archive: "Archive", data_dir: Path, session_id: str, kind: Kind, *, running: bool
) -> Checked:
    from codesdk.engine import replay_session
    from codesdk.local import verify_stored

    head = await archive.log.head(session_id)
    async with _progress(archive.log, head, _WORDS[kind].done) as log:
        if kind == "replay":
            return Checked(*await replay_session(log, archive.blobs, session_id))
        found = await verify_stored(log, archive.blobs, data_dir, session_id, running=running)
        return Checked(head, found.findings, found.interrupted)


async def _check_there(daemon: "HttpService", session_id: str, kind: Kind) -> Checked:
    if kind == "verify":
        report = await daemon.verify(session_id)
        return Checked(report.events, report.findings, report.interrupted)
    report = await daemon.replay(session_id)
    found = [{"seq": found.seq, "message": found.message} for found in report.findings]
    return Checked(report.events, found)


async def _chosen(archive: SessionReader, given: str | None) -> list[str]:
    if given is not None:
        return [(await find_session(archive, given)).session_id]
    return [row.session_id async for row in all_sessions(archive)]


def _line(
    message: str, seq: int | None = None, invariant: int | str | None = None, open_end: bool = False
) -> str:
    """Return a problem with where it is."""
    place = "" if seq is None else f"seq {seq}: "
    law = (
        ""
        if invariant is None
        else f"invariant {invariant}: "
        if str(invariant).isdigit()
        else f"{invariant}: "
    )
    return f"{place}{law}{message}"


class _Counting:
    """A log that counts how far it was read, and otherwise is the log itself."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.seq = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        frames = await self._log.read(session_id, after_seq, limit)
        if frames:
            self.seq = frames[-1].seq
        return frames


@asynccontextmanager
async def _progress(log: EventLog, head: int, done: str) -> AsyncGenerator[EventLog]:
    """Show the progress of a long check, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield log
        return
    counting = _Counting(log)
    showing = asyncio.create_task(_show_progress(counting, head, done))
    try:
        yield cast("EventLog", counting)
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def _show_progress(counting: _Counting, head: int, done: str) -> None:
    await asyncio.sleep(PATIENCE_S)
    try:
        while True:
            write_text(sys.stderr, f"\r\x1b[2K{done} {counting.seq:,} of {head:,} events")
            await asyncio.sleep(REFRESH_S)
    finally:
        write_text(sys.stderr, "\r\x1b[2K")
