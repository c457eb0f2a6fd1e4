"""Words from models, tools and files cannot steer the terminal, whichever way they are written."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import codesdk.cli
from codesdk.cli.view.out import write_json, write_line, write_mark
from codesdk.cli.view.safe import printable_json
from codesdk.cli.view.screen import PlainConsole, make_console

STEERING = "a\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e\u2066\rb"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_a_console_shows_controls_instead_of_obeying_them():
    file = io.StringIO()
    console = make_console(file, terminal=False)
    table = Table(STEERING, title=STEERING)
    table.add_row(STEERING, Text(STEERING, "bold"))
    for what in (STEERING, Text(STEERING), Text.assemble((STEERING, "red")), table):
        console.print(what)
    assert file.getvalue().count("owned") >= 6
    assert UNSAFE.findall(file.getvalue()) == []


def test_a_console_still_styles_what_it_is_given():
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, color_system="standard", _environ={})
    console.print(Text("bold", "bold"))
    assert file.getvalue() == "\x1b[1mbold\x1b[0m\n"


def test_lines_and_marks_are_harmless(capsys: pytest.CaptureFixture[str]):
    write_line(STEERING)
    write_line(STEERING, err=True)
    write_mark(False, STEERING)
    out, err = capsys.readouterr()
    assert (out.count("owned"), err.count("owned")) == (2, 1)
    assert UNSAFE.findall(out + err) == []


def test_json_is_harmless_on_a_terminal_and_means_the_same():
    given = {"said": STEERING + "é😀"}
    data = printable_json(json.dumps(given, ensure_ascii=False).encode())
    assert UNSAFE.findall(data.decode()) == []
    assert json.loads(data) == given


def test_json_for_a_program_is_written_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
):
    write_json({"said": "\x9b"})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_json({"said": "\x9b"})
    assert capsysbinary.readouterr().out == '{"said":"\x9b"}\n{"said":"\\u009b"}\n'.encode()


def test_commands_write_only_through_what_makes_words_harmless():
    folder = Path(codesdk.cli.__file__).parent / "commands"
    raw = re.compile(r"click\.s?echo\(|(?<![\w.])print\(")
    found = {path.name for path in folder.glob("*.py") if raw.search(path.read_text())}
    assert found == {"completion.py"}  # a script of ours for the shell
