"""`codesdk top`: sessions at work, refreshed again and again: tasks, events per second, cost."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence

import click
import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from codesdk.cli.app import Setup
from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import Real, json_option
from codesdk.cli.target.lookup import waiting
from codesdk.cli.target.place import open_reader, runner
from codesdk.cli.view.gist import money, plural
from codesdk.cli.view.out import write_json, write_text
from codesdk.cli.view.safe import one_line
from codesdk.cli.view.screen import make_console
from codesdk.cli.view.tables import ago, session_state
from codesdk.contract.records import SessionRow, Spent
from codesdk.contract.service import SessionReader

SEEN = 500
"""How many of the newest open sessions are looked at."""


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One session at one moment."""

    session: SessionRow
    events: int
    waiting: int
    events_per_s: float | None = None
    """Since the previous look."""


class Look(msgspec.Struct, kw_only=True):
    """All sessions at one moment: those at work first, then the latest."""

    open: int
    running: int
    queued: int
    waiting: int
    events_per_s: float | None
    cost_usd: float
    sessions: list[Line]


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Sessions to show.")
@click.option(
    "--interval",
    type=Real(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Refresh interval.",
)
@json_option("Print one JSON object per refresh.")
@click.pass_obj
def top(setup: Setup, once: bool, limit: int, interval: float, as_json: bool) -> int:
    """Watch the open sessions: those at work first, with events per second, tokens and cost. Ctrl-C ends it.

    Without a terminal it looks once, unless --json is given.
    """
    once = once or not (as_json or sys.stdout.isatty())
    return run_async(_Top(setup, limit).run(interval, once, as_json))


class _Top:
    """Looks, and remembers the previous look."""

    def __init__(self, setup: Setup, limit: int) -> None:
        self._setup = setup
        self._limit = limit
        self._before: tuple[float, Mapping[str, int]] | None = None

    async def run(self, interval: float, once: bool, as_json: bool) -> int:
        from rich.live import Live

        async with open_reader(self._setup) as place:
            owned = await runner(self._setup) != "nobody"
            if once or as_json:
                while True:
                    look = await self._look(place)
                    if as_json:
                        write_json(look)
                    else:
                        console = make_console(sys.stdout, sys.stdout.isatty())
                        with console.capture() as captured:
                            console.print(_shown(look, owned))
                        write_text(sys.stdout, captured.get())
                    if once:
                        return OK
                    await asyncio.sleep(interval)
            with Live(
                console=make_console(sys.stdout, terminal=True), auto_refresh=False, screen=True
            ) as live:
                while True:
                    live.update(_shown(await self._look(place), owned), refresh=True)
                    await asyncio.sleep(interval)

    async def _look(self, place: SessionReader) -> Look:
        rows = await place.sessions(limit=SEEN, status="open")
        asked = [row.session_id for row in await waiting(place)]
        # Sorting is stable: those at work come first, and within each group the latest.
        rows.sort(key=lambda row: row.updated_at, reverse=True)
        rows.sort(key=lambda row: row.active_task_id is None and row.session_id not in asked)
        shown = rows[: self._limit]
        # Only of the sessions that are shown: each head is a request if the sessions are a daemon's.
        heads = await asyncio.gather(*(place.head(row.session_id) for row in shown))
        events = {row.session_id: head for row, head in zip(shown, heads, strict=True)}
        rates = self._rates(events)
        spent = Spent()
        for row in rows:
            spent = spent.plus(row.spent or Spent())
        return Look(
            open=len(rows),
            running=sum(row.active_task_id is not None for row in rows),
            queued=sum(row.queued for row in rows),
            waiting=len(asked),
            events_per_s=None if rates is None else round(sum(rates.values()), 1),
            cost_usd=spent.cost_usd,
            sessions=[
                Line(
                    session=row,
                    events=events[row.session_id],
                    waiting=asked.count(row.session_id),
                    events_per_s=None if rates is None else round(rates.get(row.session_id, 0.0), 1),
                )
                for row in shown
            ],
        )

    def _rates(self, events: Mapping[str, int]) -> dict[str, float] | None:
        """Return each session's events per second since the previous look, or None at the first one."""
        now, before = time.monotonic(), self._before
        self._before = (now, events)
        if before is None:
            return None
        passed = max(now - before[0], 0.001)  # two looks may fall into one tick of the clock
        # A session that was not there at the previous look has a rate of 0.
        return {name: (head - before[1].get(name, head)) / passed for name, head in events.items()}


def _shown(look: Look, owned: bool) -> Group:
    counts = [
        plural(look.open, "open session") + (" or more" if look.open == SEEN else ""),
        f"{look.running} running",
        f"{look.queued} queued",
        f"{plural(look.waiting, 'answer')} wanted",
    ]
    if look.events_per_s is not None:
        counts.append(f"{look.events_per_s:,.0f} events/s")
    return Group(Text(" · ".join([*counts, money(look.cost_usd)]), "bold"), _table(look.sessions, owned))


def _table(lines: Sequence[Line], owned: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for name in ("SESSION", "TITLE", "RUNTIME", "STATE"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("EVENTS", "/S", "TOKENS", "COST", "UPDATED"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        row, spent = line.session, line.session.spent or Spent()
        state = session_state(row, line.waiting, owned=owned)
        style = "yellow" if line.waiting else "green" if state.startswith("running") else "dim"
        table.add_row(
            row.session_id[-8:],
            one_line(row.title or "", 40),
            row.runtime,
            Text(state, style),
            f"{line.events:,}",
            "" if line.events_per_s is None else f"{line.events_per_s:,.0f}",
            f"{spent.tokens:,}",
            money(spent.cost_usd),
            ago(row.updated_at),
        )
    return table
