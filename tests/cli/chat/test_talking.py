"""`codesdk chat` in a real terminal: from a prompt to an answer, with what happens between."""

import os
import re

import pytest
from tests.cli.chat.tmux import PROMPT, Tmux, chat, chat_command, foreign_lines, ready
from tests.cli.conftest import EDIT
from tests.cli.shell import Shell
from tests.runtimes.alone import alone, tried_outside

MARKDOWN = """
turns:
  - steps:
      - text: ["# Plan\\n\\nFirst **bold** wor", "ds.\\n\\n- one\\n- tw", "o\\n\\n```python\\nx = 1\\n```\\n\\nThe e"]
      - await_steer: true
      - text: [nd.]
"""
LONG = """
turns:
  - steps: [{burst: {count: 200, size: 16}}, {text: " The middle."}, {stall: stopped}]
  - steps: [{text: A second answer.}]
"""


def test_a_prompt_streams_asks_by_key_shows_the_difference_and_ends(shell: Shell):
    with chat(shell, EDIT) as terminal:
        ready(terminal)
        terminal.say("Fix the greeting")
        shown = terminal.wait("y yes")
        assert "▌ ❯ Fix the greeting" in shown
        assert "Let me read it." in shown
        assert "▌ ● workspace.read  hello.txt" in shown
        assert "  - Helo\n  + Hello\n▌ y yes · n no" in shown
        assert " left · workspace.edit hello.txt" in shown
        terminal.press("y")
        shown = terminal.wait("$0.0012 · /help")
        assert "▌   ✓ approved\n    Edited hello.txt at line 1.\n" in shown
        assert "    -Helo, world\n    +Hello, world" in shown
        assert shown.split("\n")[-1] == "▌ scripted · auto · context 0% · $0.0012 · /help"
        terminal.press("C-d")
        assert terminal.end() == 0
        assert f"▌ to continue: codesdk chat --session {shell.last()[-8:]}" in terminal.screen()
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


def test_minicode_answers_with_a_script_in_place_of_its_model(shell: Shell):
    with chat(shell, EDIT.replace("loop: true", ""), "--runtime", "minicode") as terminal:
        ready(terminal)
        terminal.say("Fix it")
        terminal.wait("y yes")
        terminal.press("n")
        shown = terminal.wait("✓ completed")
        assert "✗ denied by user chat: Denied at the terminal." in shown
        assert "▌ minicode · " in shown
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_finished_blocks_are_printed_once_while_the_last_one_is_still_drawn(shell: Shell):
    with chat(shell, MARKDOWN) as terminal:
        ready(terminal)
        terminal.say("Plan")
        shown = terminal.wait(lambda text: "x = 1" in text and "\n  The" in text)
        assert "First bold words." in shown
        assert " • one\n   • two" in shown
        assert "**" not in shown
        assert "```" not in shown
        terminal.say("go on")
        shown = terminal.wait("✓ completed", history=True)
        assert "▌ ❯ steered: go on" in shown
        for words in ("First bold words.", "• one", "x = 1"):
            assert shown.count(words) == 1


def test_ctrl_c_stops_in_the_middle_of_an_answer_and_the_chat_goes_on(shell: Shell):
    with chat(shell, LONG) as terminal:
        ready(terminal)
        terminal.say("Talk")
        terminal.wait("The middle.")
        terminal.press("C-c")
        shown = terminal.wait("■ stopped")
        assert "The middle." in shown
        terminal.wait("/help")
        terminal.say("And now?")
        terminal.wait("A second answer.")
        terminal.wait("✓ completed")
        terminal.press("C-c")
        terminal.wait("Ctrl-C again leaves")
        terminal.press("C-c")
        assert terminal.end() == 0


STUBBORN = "turns: [{steps: [{text: Begun.}, {stall: closed}]}]"


def test_a_second_ctrl_c_leaves_while_a_task_will_not_stop(shell: Shell):
    with chat(shell, STUBBORN) as terminal:
        ready(terminal)
        terminal.say("Talk")
        terminal.wait("Begun.")
        terminal.press("C-c")
        terminal.wait("▌ stopping · Ctrl-C again leaves")
        terminal.type("yna")  # whatever else is pressed meanwhile is only typed
        terminal.press("F5", "Left", "End", "C-c")
        assert terminal.end() == 0
    kinds = [event["type"] for event in shell.codesdk("events", "last", "--json").lines]
    assert kinds.count("task.started") == kinds.count("task.stop_requested") == 1


def test_keys_while_an_answer_streams_go_into_the_line_and_answer_nothing(shell: Shell):
    with chat(shell, MARKDOWN) as terminal:
        ready(terminal)
        terminal.say("Plan")
        terminal.wait("x = 1")
        terminal.type("yna")
        terminal.press("F5", "Tab", "C-r", "Escape", "C-l")
        shown = terminal.wait("▌ ❯ yna")
        assert "Ctrl-C stops · Enter steers" in shown
        terminal.press("C-u")
        terminal.say("go on")
        shown = terminal.wait("✓ completed", history=True)
        assert "▌ ❯ steered: go on" in shown
        assert "yna" not in shell.codesdk("transcript", "last", "--json").out


def test_ctrl_c_stops_a_command_that_runs(shell: Shell):
    script = 'turns: [{steps: [{call: {tool: workspace.exec, input: {argv: [sh, -c, "echo begun; sleep 600"]}}}]}, {steps: [{text: x}]}]'
    options = ["--allow-command", "sh", "--sandbox", "host", "--permission-mode", "yolo", "--allow-yolo"]
    with chat(shell, script, *options) as terminal:
        ready(terminal)
        terminal.say("Wait")
        terminal.wait("workspace.exec runs")
        terminal.wait("begun")
        terminal.press("C-c")
        terminal.wait("■ stopped")


def test_a_question_is_answered_in_the_line(shell: Shell):
    script = """
turns:
  - steps: [{call: {tool: user.ask, input: {question: "Which database?", options: [SQLite, Postgres]}}}]
  - expect: {tool_result_contains: Postgres}
    steps: [{text: I take that one.}]
"""
    with chat(shell, script) as terminal:
        ready(terminal)
        terminal.say("Choose")
        shown = terminal.wait("▌ answer ❯")
        assert "The model asks" in shown
        assert "  Which database?\n  1  SQLite\n  2  Postgres\n" in shown
        terminal.say("2")
        shown = terminal.wait("I take that one.")
        assert "✓ answered: Postgres" in shown


def test_what_is_typed_while_it_works_waits_in_a_queue_where_that_is_asked(shell: Shell):
    script = (
        "turns: [{steps: [{text: First.}, {await_steer: true}, {text: Heard.}]}, {steps: [{text: Second.}]}]"
    )
    with chat(shell, script) as terminal:
        ready(terminal)
        terminal.say("One")
        terminal.wait("Enter steers")
        terminal.wait("First.")
        terminal.say("/queue Two")
        shown = terminal.wait("1 message queued")
        assert "▌ ❯ queued: Two" in shown
        terminal.say("Three")
        terminal.wait("▌ ❯ steered: Three")
        shown = terminal.wait("Second.")
        assert shown.index("Heard.") < shown.index("▌ ❯ Two") < shown.index("Second.")


def test_a_real_program_answers_asks_changes_a_file_and_hands_over_to_minicode(shell: Shell):
    """Codex, which asks the script in place of its model, in a network that has only loopback."""
    with (
        alone(),
        chat(
            shell,
            EDIT.replace("loop: true", "") + "  - steps: [{text: It said Helo before.}]\n",
            "--runtime",
            "codex",
            CODESDK_PROGRAMS=os.environ["CODESDK_PROGRAMS"],
        ) as terminal,
    ):
        ready(terminal)
        terminal.say("Fix the greeting")
        shown = terminal.wait("y yes")
        assert "Let me read it." in shown
        assert "  - Helo\n  + Hello\n" in shown
        terminal.press("y")
        shown = terminal.wait("✓ completed")
        assert "▌   ✓ approved\n" in shown
        assert "Done." in shown
        assert "▌ codex-sdk · " in shown
        terminal.say("/runtime minicode")
        terminal.wait("▌ minicode · ")
        terminal.say("What did it say?")
        shown = terminal.wait("It said Helo before.")
        assert shown.index("▌ ❯ What did it say?") < shown.index("It said Helo before.")
        terminal.wait("· /help")
        terminal.press("C-d")
        assert terminal.end() == 0
        assert tried_outside() == 0
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


@pytest.mark.parametrize("term", ["screen", "screen-256color", "vt100", "linux"])
def test_other_kinds_of_terminals(shell: Shell, term: str):
    with chat(shell, EDIT, TERM=term) as terminal:
        ready(terminal)
        terminal.say("Fix it")
        terminal.wait("y yes")
        terminal.press("y")
        shown = terminal.wait("$0.0012 · /help")
        assert sum(line == PROMPT for line in shown.split("\n")) == 1
        terminal.press("C-d")
        assert terminal.end() == 0


def test_a_terminal_that_can_only_print_lines_does(shell: Shell):
    with chat(shell, EDIT, TERM="dumb") as terminal:
        terminal.wait("▌ ❯")
        terminal.say("Fix it")
        terminal.wait("y yes")
        terminal.say("y")
        terminal.wait("✓ completed")
        terminal.say("/quit")
        assert terminal.end() == 0
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


def test_without_colour_nothing_is_coloured(shell: Shell):
    with chat(shell, EDIT, NO_COLOR="1") as terminal:
        ready(terminal)
        terminal.say("Fix it")
        terminal.wait("y yes")
        shown = terminal.screen(colours=True)
    codes = {
        int(code) for found in re.findall(r"\x1b\[([\d;]*)m", shown) for code in found.split(";") if code
    }
    assert codes, "bold and the like are no colours"
    assert {code for code in codes if code >= 30} <= {39, 49}, "only the usual ones"


def test_sixty_columns_and_a_resize_leave_one_prompt_and_no_line_that_is_too_wide(shell: Shell):
    with chat(shell, EDIT, columns=60) as terminal:
        ready(terminal)
        terminal.say("Fix the greeting, please, and take all the care in the world while you do that")
        shown = terminal.wait("y yes")
        assert all(len(line) <= 60 for line in shown.split("\n"))
        assert "▌ ● workspace.edit  hello.txt" in shown
        terminal.resize(100, 30)
        terminal.wait("s show all of it")
        terminal.resize(48, 24)
        terminal.wait(lambda text: text.split("\n")[-1].startswith("▌ working") and "r n…" in text)
        shown = terminal.screen()
        assert shown.count(" left · ") == 1
        assert shown.count("▌ ● workspace.edit  hello.txt\n") == 1
        terminal.press("y")
        shown = terminal.wait(lambda text: "✓ completed" in text and PROMPT in text.split("\n"))
        assert shown.split("\n").count(PROMPT) == 1
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


def test_ten_thousand_lines_of_output_and_wide_characters(shell: Shell):
    script = """
turns:
  - steps: [{call: {tool: workspace.exec, input: {argv: [seq, "10000"]}}}]
  - steps: [{text: "日本語のテキストは幅が二倍です。それでも行は正しく折り返されます。そして絵文字 👍🏽 も。"}]
"""
    options = ["--allow-command", "seq", "--sandbox", "host", "--permission-mode", "yolo", "--allow-yolo"]
    with chat(shell, script, *options, columns=60) as terminal:
        ready(terminal)
        terminal.say("数えて")
        terminal.wait("✓ completed")
        shown = terminal.screen(history=True)
        lines = [line.strip() for line in shown.split("\n")]
        assert ["19", "20", "▌   … 9,975 lines between", "9996"] == lines[
            lines.index("19") : lines.index("9996") + 1
        ]
        assert lines[lines.index("9996") :][:5] == ["9996", "9997", "9998", "9999", "10000"]
        text = "".join(line.strip() for line in foreign_lines(shown) if any("\u3000" < char for char in line))
        assert "日本語のテキストは幅が二倍です。それでも行は正しく折り返されます。" in text


def test_a_slow_line_shows_everything_in_the_end(shell: Shell):
    slow = "import os,pty,sys,time\n" + (
        "def read(fd):\n    data = os.read(fd, 512)\n    time.sleep(0.002)\n    return data\n"
        "sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], read)))"
    )
    name = shell.write_script(LONG.replace("count: 200", "count: 4000"))
    command = chat_command("--script", name, "--workspace", "ws", "--runtime", "scripted")
    with Tmux(shell, [command[0], "-c", slow, *command]) as terminal:
        terminal.wait(PROMPT)
        terminal.say("Talk")
        terminal.wait("The middle.")
        terminal.press("C-c")
        terminal.wait("■ stopped")
        terminal.press("C-d")
        assert terminal.end() == 0
