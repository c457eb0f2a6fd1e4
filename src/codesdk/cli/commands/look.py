"""`codesdk sessions`, `events` and `transcript`: what is stored, even while another process writes it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import OK, STORAGE
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument, whole
from codesdk.cli.target.lookup import find_session, waiting
from codesdk.cli.target.place import open_reader, runner
from codesdk.cli.view.out import write_encoded, write_json, write_text
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.records import SessionRow, SessionStatus, StoredFrame
from codesdk.contract.service import SessionReader

LINES_AT_ONCE = 200


@click.command()
@click.option("--limit", type=whole(1), default=20, show_default=True, help="Show at most N.")
@click.option("--status", type=click.Choice(["open", "closed"]), help="Only sessions with this status.")
@json_option("Print one session per line as JSON.")
@click.pass_obj
def sessions(setup: Setup, limit: int, status: SessionStatus | None, as_json: bool) -> int:
    """List sessions, newest first."""
    return run_async(_sessions(setup, limit, status, as_json))


@click.command()
@session_argument()
@click.option("--follow", is_flag=True, help="Keep showing new events until the session closes, or Ctrl-C.")
@click.option("--after", type=whole(0), default=0, metavar="SEQ", help="Only events with a greater seq.")
@click.option(
    "--type", "types", multiple=True, metavar="GLOB", help="Only these types, such as 'tool.*'; repeatable."
)
@json_option("Print the stored events as they are, one per line.")
@click.pass_obj
def events(
    setup: Setup, session: str, follow: bool, after: int, types: tuple[str, ...], as_json: bool
) -> int:
    """Show a session's events, one per line. A damaged one is reported on stderr and skipped."""
    return run_async(_events(setup, session, follow, after, types, as_json))


@click.command()
@session_argument()
@json_option("Print one message per line as JSON.")
@click.pass_obj
def transcript(setup: Setup, session: str, as_json: bool) -> int:
    """Show all messages of a session. A long one may be compacted: its runtime then works with fewer."""
    return run_async(_transcript(setup, session, as_json))


async def _sessions(setup: Setup, limit: int, status: SessionStatus | None, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        rows = await archive.sessions(limit=limit, status=status)
        listed = await _listed(archive, rows)
    if as_json:
        for session, events, waits in listed:
            row: dict[str, Any] = msgspec.to_builtins(session)
            write_json(row | {"events": events, "waiting": waits})
        return OK
    from codesdk.cli.view.screen import Screen
    from codesdk.cli.view.tables import session_table

    async with Screen() as screen:
        if listed:
            screen.console.print(session_table(listed, owned=await runner(setup) != "nobody"))
        else:
            screen.console.print("No sessions yet. `codesdk demo` and `codesdk run` make some.")
    return OK


async def _listed(archive: SessionReader, rows: list[SessionRow]) -> list[tuple[SessionRow, int, int]]:
    """Return sessions with their numbers of events and of answers they wait for."""
    asked = [row.session_id for row in await waiting(archive)]
    heads = await asyncio.gather(*(archive.head(row.session_id) for row in rows))
    return [(row, head, asked.count(row.session_id)) for row, head in zip(rows, heads, strict=True)]


async def _events(
    setup: Setup, given: str, follow: bool, after: int, types: tuple[str, ...], as_json: bool
) -> int:
    async with open_reader(setup) as archive:
        session = await find_session(archive, given)
        stored = _Stored(types)
        chosen = stored.read(archive.frames(session.session_id, after_seq=after, follow=follow))
        if as_json:
            async for frame, _ in chosen:
                write_encoded([frame.data])
        else:
            await _print_events(chosen, follow)
    return STORAGE if stored.damaged else OK


async def _print_events(chosen: AsyncIterator[tuple[StoredFrame, Event]], follow: bool) -> None:
    from rich.text import Text

    from codesdk.cli.view.screen import Screen
    from codesdk.cli.view.tables import EventLines

    async with Screen() as screen:
        console = screen.console
        lines = EventLines(console.width if console.is_terminal else None)
        printed = 0
        async for _, event in chosen:
            for line in lines.of(event):
                if console.is_terminal:
                    console.print(Text.assemble(*line), soft_wrap=True)
                else:
                    console.file.write("".join(text for text, _ in line) + "\n")
            printed += 1
            if follow or printed % LINES_AT_ONCE == 0:
                await screen.send()


class _Stored:
    """Frames as read → the wanted ones, decoded; damaged ones are reported and skipped."""

    def __init__(self, types: tuple[str, ...]) -> None:
        self._types = types
        self.damaged = 0

    async def read(self, frames: AsyncIterator[StoredFrame]) -> AsyncIterator[tuple[StoredFrame, Event]]:
        """Yield until the frames end, or the session is closed."""
        async for frame in frames:
            event = self._decode(frame)
            if event is None:
                continue
            if not self._types or any(fnmatchcase(event.type, pattern) for pattern in self._types):
                yield frame, event
            if event.type == "session.closed":
                return

    def _decode(self, frame: StoredFrame) -> Event | None:
        problem = frame.damage
        if problem is None:
            try:
                return decode(frame.data)
            except ValueError as error:
                problem = str(error)
        self.damaged += 1
        write_text(sys.stderr, f"event {frame.seq} is damaged: {problem}\n")
        return None


async def _transcript(setup: Setup, given: str, as_json: bool) -> int:
    async with open_reader(setup) as archive:
        session = await find_session(archive, given)
        messages = await archive.transcript(session.session_id)
        beside = await archive.supplements(session.session_id)
    if as_json:
        for line in (*messages, *beside):
            write_json(line)
        return OK
    from codesdk.cli.view.screen import Screen
    from codesdk.cli.view.tables import print_message, print_supplement

    async with Screen() as screen:
        for message in messages:
            print_message(screen.console, message)
        for one in beside:
            print_supplement(screen.console, one)
        if not messages:
            screen.console.print("No messages yet.")
    return OK
