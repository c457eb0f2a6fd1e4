import pytest
from tests.cli.conftest import EDIT
from tests.cli.shell import Shell, Terminal

PROMPT = "show > "
TWICE = """
turns:
  - steps: [{call: {tool: workspace.edit, input: {path: hello.txt, old: Helo, new: Hello}}}]
  - steps: [{call: {tool: workspace.edit, input: {path: hello.txt, old: world, new: there}}}]
  - steps: [{text: Done.}]
"""


def start(shell: Shell, script: str = EDIT, term: str = "xterm-256color") -> Terminal:
    name = shell.write_script(script)
    options = ["--runtime=scripted", "--script", name, "--workspace", "ws", "--permission-mode", "auto"]
    return Terminal(shell, "run", "x", *options, TERM=term)


def test_a_question_shows_what_would_change_and_yes_lets_it_run(shell: Shell):
    with start(shell) as terminal:
        terminal.expect("- Helo")
        terminal.expect("+ Hello")
        terminal.expect(PROMPT)
        terminal.type("what?\n")
        terminal.expect(PROMPT)
        terminal.type("s\n")
        terminal.expect('"old": "Helo"')
        terminal.expect(PROMPT)
        terminal.type("y\n")
        terminal.expect("Edited hello.txt at line 1.")
        terminal.expect("completed")
        assert terminal.end() == 0
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


def test_no_is_told_with_its_reason(shell: Shell):
    with start(shell) as terminal:
        terminal.expect(PROMPT)
        terminal.type("n leave it alone\n")
        terminal.expect("denied by user: leave it alone")
        assert terminal.end() == 0
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_always_is_asked_once(shell: Shell):
    with start(shell, TWICE) as terminal:
        terminal.expect(PROMPT)
        terminal.type("a\n")
        assert terminal.end() == 0
    assert terminal.plain.count(PROMPT) == 1
    assert (shell.workspace / "hello.txt").read_text() == "Hello, there\n"


def test_what_was_typed_before_a_question_does_not_answer_it(shell: Shell):
    script = EDIT.replace("There is a typo.", "There is a typo.\n      - delay_s: 0.5")
    with start(shell, script) as terminal:
        terminal.expect("There is a")
        terminal.type("y\n")
        terminal.expect(PROMPT)
        terminal.type("n\n")
        terminal.expect("denied by user")
        assert terminal.end() == 0
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_the_end_of_input_is_a_denial(shell: Shell):
    with start(shell, TWICE) as terminal:
        terminal.expect(PROMPT)
        terminal.type("\x04")
        terminal.expect("the terminal's input has ended")
        terminal.expect("the terminal's input has ended")
        assert terminal.end() == 0


def test_an_answer_from_elsewhere_ends_the_question(shell: Shell):
    with start(shell) as terminal:
        terminal.expect(PROMPT)
        call = shell.codesdk("approve", "last", "--json").lines[0]["tool_call_id"]
        assert shell.codesdk("approve", "last", call).code == 0
        terminal.expect("approved by user terminal")
        terminal.expect("completed")
        assert terminal.end() == 0


def test_ctrl_c_stops_the_task_and_says_so(shell: Shell):
    with start(shell) as terminal:
        terminal.expect(PROMPT)
        terminal.type("\x03")
        terminal.expect("stopping; Ctrl-C again quits at once")
        terminal.expect("stopped")
        terminal.expect("run --session")
        assert terminal.end() == 130


def test_a_second_ctrl_c_quits_at_once(shell: Shell):
    with start(shell, "turns: [{steps: [{text: 'Working. '}, {stall: closed}]}]") as terminal:
        terminal.expect("Working.")
        terminal.type("\x03")
        terminal.expect("again quits at once")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "run --session" not in terminal.text


def test_while_nothing_is_said_a_spinner_shows_life(shell: Shell):
    with start(shell, "turns: [{steps: [{delay_s: 1}, {text: Hi.}]}]") as terminal:
        terminal.expect("working")
        terminal.expect("Hi.")
        assert terminal.end() == 0


def test_a_dumb_terminal_gets_no_spinner(shell: Shell):
    with start(shell, "turns: [{steps: [{delay_s: 0.8}, {text: Hi.}]}]", term="dumb") as terminal:
        assert terminal.end() == 0
    assert "working" not in terminal.text


@pytest.mark.parametrize("columns", [30, 60])
def test_lines_break_between_words_at_the_width_of_the_terminal(shell: Shell, columns: int):
    words = " ".join(f"word{number}" for number in range(40))
    name = shell.write_script(f"turns: [{{steps: [{{text: {words}}}]}}]")
    with Terminal(shell, "run", "x", "--runtime=scripted", "--script", name, columns=columns) as terminal:
        assert terminal.end() == 0
    lines = [line for line in terminal.plain.replace("\r", "").split("\n") if line.startswith("word")]
    assert " ".join(lines).split() == words.split()
    assert max(len(line) for line in lines) <= columns
