import re
import shlex
from pathlib import Path

from tests.cli.shell import Shell, Terminal

from codesdk.contract.codec import decode


def test_the_demo_shows_a_whole_session_checks_it_and_prints_commands_that_work(shell: Shell, tmp_path):
    ran = shell.codesdk("demo", TMPDIR=str(tmp_path))
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    for words in (
        "Demo · minicode · yolo · ",
        "● workspace.read  greet.py",
        "✗ denied by policy: A rule of this workspace keeps .env closed.",
        '  -    return f"Helo, {name}!"\n  +    return f"Hello, {name}!"\n',
        "✓ completed · 1 call denied · 2,700 tokens in, 220 out · $",
        "✓ verified: all nine invariants hold",
        "✓ replayed: bit for bit the same",
    ):
        assert words in ran.out
    (place,) = tmp_path.glob("codesdk-demo-*")
    assert "Hello" in (place / "workspace" / "greet.py").read_text()
    assert not shell.data.exists()
    commands = re.findall(r"^  codesdk (.*?)(?:   .*)?$", ran.out, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        assert shell.codesdk(*shlex.split(command)).code == 0


def test_without_the_libraries_of_minicode_the_demo_plays_its_script_and_says_so(shell: Shell, tmp_path):
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text("import sys\nsys.modules['pydantic_ai'] = None\n")
    ran = shell.codesdk("demo", "--clean", TMPDIR=str(tmp_path), PYTHONPATH=str(hiding))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Without minicode, ")
    assert (
        "pydantic_ai is not installed. Run: pip install 'codesdk[minicode]'.\n> Fix the greeting" in ran.out
    )
    assert "Demo · scripted · yolo · " in ran.out
    assert "✓ completed · 1 call denied · 2,700 tokens in, 220 out · $0.0115" in ran.out
    assert "✓ replayed: bit for bit the same" in ran.out


def test_the_demo_as_json_is_events_only(shell: Shell, tmp_path):
    ran = shell.codesdk("--data-dir", "mine", "demo", "--json", "--clean", TMPDIR=str(tmp_path))
    assert (ran.code, ran.err) == (0, "")
    events = [decode(line.encode()) for line in ran.out.splitlines()]
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[1], kinds[-1]) == ("session.created", "task.started", "task.completed")
    assert kinds.count("tool.call.denied") == 1
    assert list(tmp_path.glob("codesdk-demo-*")) == []
    assert shell.codesdk("--data-dir", "mine", "events", "last", "--json").out == ran.out


def test_a_terminal_gets_colour_unless_that_is_not_wanted(shell: Shell, stored: Shell, tmp_path):
    with Terminal(shell, "demo", "--clean", TMPDIR=str(tmp_path)) as terminal:
        terminal.expect("replayed")
        assert terminal.end() == 0
    assert "\x1b[32m" in terminal.text
    with Terminal(stored, "events", "last", NO_COLOR="1") as terminal:
        terminal.expect("task.completed")
        assert terminal.end() == 0
    assert not re.search(r"\x1b\[(?:\d+;)*3\d", terminal.text)


def test_the_script_of_the_demo_is_shipped_with_the_package():
    import codesdk.cli

    assert (Path(codesdk.cli.__file__).parent / "demo.yaml").is_file()
