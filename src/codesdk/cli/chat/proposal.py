"""The input of a call that asks for permission → what it would do, as a person judges it: a difference, a command, a text. Pure."""

import shlex
from typing import Any, cast

from rich.text import Text

from codesdk.cli.view.pieces import diff_lines, whole_input

_MANY = 100_000


def proposal_lines(given: Any) -> list[Text]:
    """Return all lines of what a call would do."""
    if not isinstance(given, dict):
        return [] if given is None else whole_input(given)
    fields = cast("dict[str, Any]", given)
    match fields:
        case {"old": str(old), "new": str(new)} | {"old_text": str(old), "new_text": str(new)}:
            return [*_signed(old, "-", "red"), *_signed(new, "+", "green")]
        case {"content": str(content)}:
            return _signed(content, "+", "green")
        case {"patch": str(patch)}:
            return diff_lines(patch, _MANY)
        case {"argv": [*words]}:
            return _command(shlex.join(map(str, words)), fields)
        case {"command": str(command)}:
            return _command(command, fields)
        case _:
            return whole_input(fields)


def _command(command: str, fields: dict[str, Any]) -> list[Text]:
    lines = [
        Text(f"$ {line}" if number == 0 else f"  {line}", "bold")
        for number, line in enumerate(command.split("\n"))
    ]
    if str(fields.get("cwd", ".")) != ".":
        lines.append(Text(f"in {fields['cwd']}", "dim"))
    return lines


def _signed(text: str, sign: str, style: str) -> list[Text]:
    return [Text(f"{sign} {line}", style) for line in text.removesuffix("\n").split("\n")]
