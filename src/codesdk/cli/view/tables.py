"""Stored sessions, events, messages and artifacts → lines and tables for people."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codesdk.cli.view.flow import Flow
from codesdk.cli.view.gist import brief, gist, local_time, plural, size, who
from codesdk.cli.view.pieces import call_line, result_lines
from codesdk.cli.view.safe import one_line, printable
from codesdk.contract import messages as blocks
from codesdk.contract.events import Event
from codesdk.contract.records import ArtifactRow, SessionRow, Supplement
from codesdk.sandbox import LimitName, SandboxCapabilities

Part = tuple[str, str]

_TYPE_WIDTH = 26
_STYLES = {
    "task.completed": "green",
    "task.failed": "red",
    "task.stopped": "yellow",
    "tool.call.denied": "red",
    "approval.requested": "yellow",
    "runtime.notice": "yellow",
    "session.recovered": "yellow",
    "session.clock_changed": "yellow",
    "model.output.delta": "dim",
}
_ROLES = {"user": "bold green", "assistant": "bold cyan", "tool": "bold magenta", "system": "bold"}
_LIMITS: dict[LimitName, str] = {
    "wall": "time",
    "output": "output",
    "memory": "memory, over all processes",
    "cpu": "processor time, over all processes",
    "processes": "the number of processes",
    "file_size": "the size of a file",
    "open_files": "open files",
    "scratch": "temporary files",
}
_STATES = {"running": "green", "waits": "yellow", "interrupted": "red", "closed": "dim"}


def session_table(rows: Sequence[tuple[SessionRow, int, int]], *, owned: bool) -> Table:
    """Return sessions with their numbers of events and of answers they wait for."""
    table = _table("SESSION", "TITLE", "RUNTIME", "STATE", "EVENTS", "UPDATED")
    table.columns[0].no_wrap = True
    table.columns[4].justify = "right"
    for row, events, waiting in rows:
        state = session_state(row, waiting, owned=owned)
        table.add_row(
            row.session_id,
            one_line(row.title or "", 40),
            row.runtime,
            Text(state, _STATES.get(state.split(" ")[0], "")),
            f"{events:,}",
            ago(row.updated_at),
        )
    return table


def session_state(row: SessionRow, waiting: int, *, owned: bool) -> str:
    """Return what a session is doing. A task that no process owns was interrupted."""
    if row.status == "closed":
        return "closed"
    if waiting:
        return f"waits for {plural(waiting, 'answer')}"
    if row.active_task_id is not None:
        queued = f", {row.queued} queued" if row.queued else ""
        return f"running{queued}" if owned else "interrupted"
    return "open"


def artifact_table(rows: Iterable[ArtifactRow]) -> Table:
    """Return artifacts with their kind and size."""
    table = _table("ARTIFACT", "NAME", "TYPE", "SIZE")
    table.columns[0].no_wrap = True
    table.columns[3].justify = "right"
    for row in rows:
        kind = one_line(row.ref.content_type.partition(";")[0], 60)
        table.add_row(row.ref.artifact_id, one_line(row.ref.name or "", 60), kind, size(row.ref.size_bytes))
    return table


def sandbox_table(found: Sequence[SandboxCapabilities]) -> Table:
    """Return what each sandbox enforces: one row per property, one column per backend."""
    table = _table("SANDBOX", *(each.backend for each in found))
    lines: dict[str, Sequence[bool]] = {
        "works here": [each.available for each in found],
        "keeps files outside the workspace away": [each.filesystem for each in found],
        "cuts the network": [each.network for each in found],
        "can allow single hosts": [each.egress for each in found],
        "filters system calls": [each.syscalls for each in found],
    }
    for name, words in _LIMITS.items():
        lines[f"limits {words}"] = [name in each.limits for each in found]
    for title, values in lines.items():
        cells = zip(values, found, strict=True)
        table.add_row(title, *(_yes_or_no(value, each.available) for value, each in cells))
    return table


def _yes_or_no(value: bool, available: bool) -> Text:
    if value:
        return Text("yes", "green")
    return Text("no", "red") if available else Text("-", "dim")


def ago(stamp: str, now: datetime | None = None) -> str:
    """Return how long ago a stored time was."""
    seconds = int(((now or datetime.now(UTC)) - datetime.fromisoformat(stamp)).total_seconds())
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    if seconds < 86_400:
        return f"{seconds // 3600} h ago"
    return f"{local_time(stamp):%Y-%m-%d}"


class EventLines:
    """Events as one line each, with a line for each new day, cut to a width if there is one."""

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._day: date | None = None

    def of(self, event: Event) -> list[list[Part]]:
        """Return an event's line, after one for its day if that is new. A line is parts with styles."""
        when = local_time(event.time)
        lines: list[list[Part]] = []
        if when.date() != self._day:
            self._day = when.date()
            lines.append([(f"{when:%Y-%m-%d}", "dim")])
        start = f"{event.seq:>5}  "
        clock = f"{when:%H:%M:%S}.{when.microsecond // 1000:03}  "
        kind = f"{one_line(event.type, 60):<{_TYPE_WIDTH}} "
        words = gist(event, 200 if self._width is None else self._width)
        if self._width is not None:
            words = fit(words, max(self._width - len(start + clock + kind), 10))
        style = _STYLES.get(event.type, "")
        lines.append([(start, ""), (clock, "dim"), (kind, style or "cyan"), (words, style)])
        return lines


def fit(text: str, cells: int) -> str:
    """Cut a line to this many cells of a terminal."""
    if len(text) <= cells and (text.isascii() or cell_len(text) <= cells):
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…"


def print_message(console: Console, message: blocks.Message) -> None:
    """Print one message of a transcript."""
    span = message.summary_of
    name = message.role if span is None else f"summary of messages {span.first} to {span.last}"
    console.print(Text(name, _ROLES.get(message.role, "bold")))
    for block in message.content:
        match block:
            case blocks.Text() | blocks.Code():
                _print_text(console, block.text if isinstance(block, blocks.Text) else block.code, "")
            case blocks.Reasoning():
                if block.text:
                    _print_text(console, block.text, "dim italic")
            case blocks.ToolUse():
                console.print(Text("  ").append_text(call_line(block.name, block.input, console.width - 2)))
            case blocks.ToolResult():
                for line in result_lines(block.result, is_error=block.is_error):
                    console.print(line)
            case blocks.ArtifactBlock():
                console.print(
                    Text(f"  {brief(block.name or block.artifact_id)} ({block.artifact_id})", "dim")
                )
    console.print()


def print_supplement(console: Console, one: Supplement) -> None:
    """Print what stands beside a transcript."""
    console.print(
        Text(f"beside it, by {one_line(who(one.by), 60)} ({one_line(one.supplement_id, 64)})", "bold")
    )
    if one.text is not None:
        _print_text(console, one.text, "")
    if one.data is not None:
        _print_text(console, msgspec.json.encode(one.data).decode(), "dim")
    console.print()


def _print_text(console: Console, text: str, style: str) -> None:
    flow = Flow(lambda: console.width if console.is_terminal else None, indent="  ")
    console.print(Text(flow.feed(printable(text)) + flow.end(), style), end="", soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="ellipsis")
    return table
