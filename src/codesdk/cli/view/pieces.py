"""Calls, results, diffs and endings → styled text, the parts of the views. Pure."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from rich.text import Text

from codesdk.cli.view.gist import brief, duration, plural, tokens
from codesdk.cli.view.safe import one_line, printable
from codesdk.contract.events import TaskCompleted, TaskFailed, TaskStopped

CALL = "●"
GOOD, BAD, HALTED, ASKS, NOTE = "✓", "✗", "■", "?", "·"
MAX_DIFF_LINES = 40
MAX_RESULT_LINES = 4
MAX_ERROR_LINES = 12
_DIFF_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"), ("\\", "dim"))


def call_line(name: str, arguments: Any, width: int, *, again: bool = False) -> Text:
    """Return the line that announces a call. `again` if it is repeated above its result."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{CALL} ", "dim" if again else "cyan")
    line.append(one_line(name, 60), "dim" if again else "bold")
    rest = max(width - len(line.plain) - 2, 20)
    given = brief(arguments, rest)
    if given:
        line.append(f"  {given}", "dim" if again else "")
    return line


def result_lines(result: Any, *, is_error: bool) -> list[Text]:
    """Return the beginning of a tool's result."""
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode("utf-8", "replace")
    limit = MAX_ERROR_LINES if is_error else MAX_RESULT_LINES
    return _clipped(text.split("\n"), limit, "red" if is_error else "dim")


def diff_lines(diff: str, limit: int = MAX_DIFF_LINES) -> list[Text]:
    """Return a unified diff in colour."""
    lines = diff.removesuffix("\n").split("\n")
    shown = [Text(f"  {printable(line).expandtabs(4)}", _diff_style(line)) for line in lines[:limit]]
    return shown + _more(len(lines) - limit)


def replacement_lines(arguments: Any, limit: int = MAX_RESULT_LINES * 3) -> list[Text]:
    """Return what an edit would replace, if the input is that of an edit."""
    match arguments:
        case {"old": str(old), "new": str(new)}:
            lines = [(f"- {line}", "red") for line in old.removesuffix("\n").split("\n")]
            lines += [(f"+ {line}", "green") for line in new.removesuffix("\n").split("\n")]
        case _:
            return []
    shown = [Text(f"    {printable(line).expandtabs(4)}", style) for line, style in lines[:limit]]
    return shown + _more(len(lines) - limit, "    ")


def whole_input(arguments: Any) -> list[Text]:
    """Return a call's whole input as indented JSON."""
    data = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode("utf-8", "replace")
    return [Text(f"    {printable(line)}") for line in data.split("\n")]


def ending_line(payload: TaskCompleted | TaskFailed | TaskStopped) -> Text:
    """Return the line that says how a task went, what it used and how long it took."""
    if isinstance(payload, TaskCompleted):
        line = Text.assemble((f"{GOOD} completed", "bold green"))
        if payload.stop_reason not in ("end_turn", "stop"):
            line.append(f" ({one_line(payload.stop_reason, 60)})")
    elif isinstance(payload, TaskStopped):
        line = Text.assemble((f"{HALTED} stopped", "bold yellow"), f" · {one_line(payload.reason, 200)}")
    else:
        error = payload.error
        line = Text.assemble(
            (f"{BAD} failed", "bold red"), f" · {error.code}: {one_line(error.message, 1000)}"
        )
    if payload.work.denied:
        line.append(f" · {plural(payload.work.denied, 'call')} denied", "yellow")
    for part in (tokens(payload.usage), duration(payload.duration_ms)):
        line.append(f" · {part}" if part else "", "dim")
    return line


def note(text: str, style: Literal["dim", "yellow", "red"] = "dim", mark: str = NOTE) -> Text:
    """Return a remark of CodeSDK itself."""
    return Text(f"{mark} {one_line(text, 1000)}", style)


def prompt_line(choices: Sequence[tuple[str, str]]) -> Text:
    """Return the line that a person types an answer on: keys and what they mean."""
    line = Text("  ")
    for key, meaning in choices:
        line.append(key, "bold yellow").append(f" {meaning} · ", "dim")
    line.right_crop(3)
    return line.append(" > ", "bold yellow")


def step_lines(steps: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Return commands with their purpose beside them, or above them where there is no room."""
    longest = max(len(command) for command, _ in steps)
    beside = all(longest + len(purpose) + 5 <= width for _, purpose in steps)
    lines: list[Text] = []
    for command, purpose in steps:
        if beside:
            lines.append(Text.assemble(f"  {command:<{longest}}", (f"   {purpose}", "dim")))
        else:
            lines += [Text(f"  {purpose}", "dim"), Text(f"    {command}")]
    return lines


def _clipped(lines: list[str], limit: int, style: str) -> list[Text]:
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) == limit + 1:
        limit += 1  # the last line takes no more room than "1 more line" would
    shown = [
        Text(f"  {printable(line).expandtabs(4)}", style, no_wrap=True, overflow="ellipsis")
        for line in lines[:limit]
    ]
    return shown + _more(len(lines) - limit)


def _more(count: int, indent: str = "  ") -> list[Text]:
    return [Text(f"{indent}… {plural(count, 'more line')}", "dim")] if count > 0 else []


def _diff_style(line: str) -> str:
    return next((style for start, style in _DIFF_STYLES if line.startswith(start)), "dim")
