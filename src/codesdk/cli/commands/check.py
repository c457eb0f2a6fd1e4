"""`codesdk verify` and `codesdk replay`: stored logs → the problems found in them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import all_sessions, find_session
from codesdk.cli.target.place import connected, reading, runner
from codesdk.cli.view.out import write_json, write_text
from codesdk.cli.view.safe import one_line
from codesdk.contract.ports import EventLog
from codesdk.contract.records import StoredFrame
from codesdk.contract.service import SessionReader

PATIENCE_S = 0.5  # a check that takes less shows no progress
REFRESH_S = 0.1


@click.command()
@session_argument(required=False)
@click.option("--all", "every", is_flag=True, help="Check all sessions.")
@json_option("Print one result per session as JSON.")
@click.pass_obj
def verify(setup: Setup, session: str | None, every: bool, as_json: bool) -> int:
    """Check a stored log against the contract's nine invariants. Exits 1 if one is broken."""
    if every == (session is not None):
        raise click.UsageError("Name a session, or use --all.")
    return run_async(_verify(setup, session, as_json))


@click.command()
@session_argument()
@json_option("Print the result as JSON.")
@click.pass_obj
def replay(setup: Setup, session: str, as_json: bool) -> int:
    """Play a stored log through a fresh engine. Exits 1 unless the same events come out, bit for bit."""
    return run_async(_replay(setup, session, as_json))


async def _verify(setup: Setup, given: str | None, as_json: bool) -> int:
    from codesdk.engine import verify_session

    code = OK
    if setup.url is not None:
        return await _verify_there(setup, given, as_json)
    async with reading(setup.data_dir) as archive:
        owned = await runner(setup) != "nobody"
        for session_id in await _chosen(archive, given):
            head = await archive.log.head(session_id)
            async with _progress(archive.log, head, "checked") as log:
                findings = await verify_session(log, archive.blobs, session_id, running=owned)
            if findings:
                code = FAILED
            if as_json:
                found = {"findings": findings}
                write_json({"session_id": session_id, "ok": not findings, "events": head, **found})
                continue
            lines = [_line(found.seq, found.message, found.invariant) for found in findings]
            _tell(session_id, lines, f"{head:,} events, all nine invariants hold")
    return code


async def _replay(setup: Setup, given: str, as_json: bool) -> int:
    if setup.url is not None:
        return await _replay_there(setup, given, as_json)
    from codesdk.engine import replay_session

    async with reading(setup.data_dir) as archive:
        session_id = (await find_session(archive, given)).session_id
        head = await archive.log.head(session_id)
        async with _progress(archive.log, head, "replayed") as log:
            count, differences = await replay_session(log, archive.blobs, session_id)
    if as_json:
        found = {"differences": differences}
        write_json({"session_id": session_id, "ok": not differences, "events": count, **found})
    else:
        lines = [_line(difference.seq, difference.message) for difference in differences]
        _tell(session_id, lines, f"{count:,} events, replayed bit for bit")
    return FAILED if differences else OK


async def _verify_there(setup: Setup, given: str | None, as_json: bool) -> int:
    """Let a daemon check its logs."""
    code = OK
    async with connected(setup) as client:
        for session_id in await _chosen(client.daemon, given):
            report = await client.daemon.verify(session_id)
            if not report.ok:
                code = FAILED
            if as_json:
                write_json({"session_id": session_id, **msgspec.to_builtins(report)})
                continue
            lines = [_line(found.seq, found.message, found.invariant) for found in report.findings]
            _tell(session_id, lines, f"{report.events:,} events, all nine invariants hold")
    return code


async def _replay_there(setup: Setup, given: str, as_json: bool) -> int:
    """Let a daemon replay a log."""
    async with connected(setup) as client:
        session_id = (await find_session(client.daemon, given)).session_id
        report = await client.daemon.replay(session_id)
    if as_json:
        found = [{"seq": each.seq, "message": each.message} for each in report.findings]
        write_json({"session_id": session_id, "ok": report.ok, "events": report.events, "differences": found})
    else:
        lines = [_line(each.seq, each.message) for each in report.findings]
        _tell(session_id, lines, f"{report.events:,} events, replayed bit for bit")
    return OK if report.ok else FAILED


async def _chosen(archive: SessionReader, given: str | None) -> list[str]:
    if given is not None:
        return [(await find_session(archive, given)).session_id]
    return [row.session_id async for row in all_sessions(archive)]


def _line(seq: int | None, message: str, invariant: int | str | None = None) -> str:
    """Return a problem with where it is."""
    place = "" if seq is None else f"seq {seq}: "
    law = "" if invariant is None else f"invariant {invariant}: "
    return f"{place}{law}{message}"


def _tell(session_id: str, problems: Sequence[str], good: str) -> None:
    """Print the problems, or that there are none."""
    if not problems:
        click.secho("✓ ", fg="green", nl=False)
        click.echo(f"{session_id}: {good}")
        return
    count = len(problems)
    click.secho("✗ ", fg="red", nl=False)
    click.echo(f"{session_id}: {count} {'problem' if count == 1 else 'problems'}")
    for problem in problems:
        click.echo(f"  {one_line(problem)}")


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
