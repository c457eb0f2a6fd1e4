"""docs/chat.md names what `codesdk chat` has: its commands, keys and options; its limits are those of the code."""

import re
from pathlib import Path

from codesdk.cli.chat.commands import COMMANDS
from codesdk.cli.chat.keyboard import TABLE
from codesdk.cli.chat.pastes import MAX_TYPED_CHARS, MAX_TYPED_LINES
from codesdk.cli.chat.tool_output import HEAD_LINES, TAIL_LINES
from codesdk.cli.chat.waiting import CALM_S, KEYS
from codesdk.cli.commands.chat import chat
from codesdk.cli.settings.table import OPENING
from codesdk.cli.view.pieces import MAX_DIFF_LINES

PAGE = (Path(__file__).parents[2] / "docs" / "chat.md").read_text()


def rows(title: str) -> list[tuple[str, str]]:
    table = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(
        r"^\| (?!---|key|command|option)(.+?) \| (.+) \|$", table.replace("\\|", "/"), re.MULTILINE
    )


def test_the_tables_of_keys_and_commands_are_those_of_the_code():
    assert rows("Keys") == [(key.keys, key.meaning) for key in TABLE]
    written = {f"/{name} {command.arguments}".strip(): command.meaning for name, command in COMMANDS.items()}
    assert rows("Commands") == [(f"`{name.replace('|', '/')}`", meaning) for name, meaning in written.items()]


def test_the_options_are_those_of_the_command():
    rules = {setting.parameter for setting in OPENING}
    own = {option.opts[0] for option in chat.params if option.name not in rules}
    own = {name for name in own if name not in ("--data-dir", "--url", "--token")}
    assert {re.match(r"`(-[a-z-]+)", name)[1] for name, _ in rows("Options")} == own  # type: ignore[index]


def test_the_figures_and_the_panel_are_those_of_the_code():
    assert f"first {HEAD_LINES} lines and the last {TAIL_LINES}" in PAGE
    assert f"cut after {MAX_DIFF_LINES} lines" in PAGE
    assert f"for {CALM_S} s" in PAGE
    assert f"more than {MAX_TYPED_LINES} lines or {MAX_TYPED_CHARS:,} characters" in PAGE
    assert "▌ " + " · ".join(f"{key} {meaning}" for key, (_, meaning) in KEYS.items()) in PAGE
