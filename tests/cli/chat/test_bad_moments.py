"""Bad input and keys at the wrong moment, in a real terminal: a clear sentence, and nothing is lost."""

from pathlib import Path

from tests.cli.chat.tmux import PROMPT, Tmux, chat, chat_command, ready
from tests.cli.conftest import EDIT
from tests.cli.shell import Shell

ANSWER = "turns: [{steps: [{text: The answer.}]}]\nloop: true"


def test_what_is_sent_before_it_is_connected_is_sent_then(shell: Shell):
    with chat(shell, ANSWER) as terminal:
        terminal.wait(PROMPT)
        terminal.say("Hello")  # most likely before the rest is loaded; after that, it is just a message
        terminal.press("y", "n", "a", "Escape", "F5", "Up", "Left", "Delete", "C-a", "C-k")
        shown = terminal.wait("✓ completed")
        assert "▌ ❯ Hello" in shown


def test_a_key_answers_nothing_while_a_message_is_typed(shell: Shell):
    with chat(shell, EDIT) as terminal:
        ready(terminal)
        terminal.say("Fix it")
        terminal.type("y")  # most likely before the question is there
        terminal.type("yy n a")
        shown = terminal.wait("the keys answer once the line is empty")
        assert "▌ ❯ yyy n a" in shown
        assert "y yes" not in shown
        terminal.press("C-u")
        terminal.wait("y yes")
        terminal.press("F1", "Up", "Down", "Tab", "x")
        terminal.wait("the keys answer once the line is empty")
        terminal.press("BSpace")
        terminal.wait("y yes")
        terminal.press("s")
        terminal.wait("y yes")
        terminal.press("r")
        terminal.wait("▌ why not ❯")
        terminal.press("C-c")
        terminal.wait("y yes")
        terminal.press("r")
        terminal.wait("▌ why not ❯")
        terminal.say("leave it alone")
        shown = terminal.wait("✓ completed")
        assert "denied by user chat: leave it alone" in shown
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_twenty_columns_are_enough_to_answer(shell: Shell):
    with chat(shell, EDIT, columns=20, rows=16) as terminal:
        terminal.wait(PROMPT)
        terminal.say("Fix it")
        shown = terminal.wait("y yes")
        assert "+ Hello" in shown
        terminal.press("y")
        terminal.wait("completed")
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


def test_a_paste_that_is_not_text_and_one_of_five_megabytes(shell: Shell):
    with chat(shell, ANSWER) as terminal:
        ready(terminal)
        terminal.paste("bin\x00ary\x1b[31m\x07 text")
        terminal.wait("The paste had 3 control characters")
        terminal.wait("▌ ❯ binary[31m text")
        terminal.press("C-u")
        terminal.paste("long words " * 500_000)
        terminal.wait("▌ ❯ [paste 1: 5,500,000 characters]")
        terminal.press("Enter")
        terminal.wait("The messages")  # are more than the engine takes, and the sign is in the line again
        terminal.wait("▌ ❯ [paste 1: 5,500,000 characters]")
        terminal.press("C-u")
        terminal.say("[paste 7: 5 characters]")
        terminal.wait("was pasted in another chat and is not here")


def test_files_are_attached_by_path_and_a_file_that_cannot_be_is_named(shell: Shell):
    (shell.workspace / "notes.md").write_text("The notes.\n")
    (shell.workspace / "data.bin").write_bytes(b"\0\1\2")
    with chat(shell, ANSWER) as terminal:
        ready(terminal)
        terminal.type("Read @no")
        terminal.wait(" notes.md")
        terminal.press("Tab")
        terminal.wait("▌ ❯ Read @notes.md")
        terminal.press("Enter", "Enter")
        terminal.wait("✓ completed")
        terminal.say("And @data.bin")
        terminal.wait("data.bin is neither text nor an image")
        terminal.wait("▌ ❯ And @data.bin")
        terminal.press("C-u")
        terminal.paste(str(shell.workspace / "notes.md"))
        terminal.wait(lambda text: "▌ ❯ @/" in text)
    assert "The notes." in shell.codesdk("transcript", "last", "--json").out


def test_history_is_kept_over_chats_and_searched(shell: Shell):
    with chat(shell, ANSWER) as terminal:
        ready(terminal)
        terminal.say("A first line")
        terminal.wait("✓ completed")
        terminal.press("C-d")
        assert terminal.end() == 0
    with chat(shell, ANSWER) as terminal:
        ready(terminal)
        terminal.press("Up")
        terminal.wait("▌ ❯ A first line")
        terminal.press("Down")
        terminal.wait(lambda text: "first" not in text)
        terminal.press("C-r")
        terminal.wait("▌ search:")
        terminal.type("fir")
        terminal.wait("▌ ❯ A first line")
        terminal.press("Enter")
        terminal.wait(lambda text: "search:" not in text and "▌ ❯ A first line" in text)
    kept = shell.home / "state" / "codesdk" / "chat-history"
    assert kept.stat().st_mode & 0o077 == 0


def test_without_a_terminal_it_says_so_and_prints_one_answer_where_that_is_asked(shell: Shell):
    refused = shell.codesdk("chat")
    assert (refused.code, "A chat needs a terminal" in refused.err) == (2, True)
    name = shell.write_script(ANSWER)
    options = ["--script", name, "--runtime", "scripted", "--workspace", "ws"]
    answered = shell.spawn("chat", "-p", "-", *options, stdin="Say it")
    assert (answered.code, answered.out, answered.err) == (0, "The answer.\n", "")
    found = shell.spawn("chat", "-p", "Say it", *options, "--json").lines
    assert [found[0]["result"]["text"], len(found)] == ["The answer.", 1]
    denied = shell.write_script(EDIT)
    done = shell.spawn("chat", "-p", "x", "--script", denied, "--runtime", "scripted", "--workspace", "ws")
    assert (done.code, done.out.splitlines()[-1]) == (0, "Done.")
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"
    for wrong, words in {
        ("--session", "nosuchsession"): "nosuchsession",
        ("--continue", "--session", "x"): "not both",
        ("--workspace", "nowhere"): "not a directory",
        ("-p", " "): "The prompt is empty",
        ("--json",): "give the message with -p",
    }.items():
        failed = shell.spawn("chat", *wrong, *([] if "-p" in wrong or "--json" in wrong else ["-p", "x"]))
        assert failed.code in (2, 3)
        assert words in failed.err


def test_a_wrong_session_ends_the_chat_with_a_sentence(shell: Shell):
    with Tmux(shell, chat_command("--session", "nosuchsession")) as terminal:
        terminal.wait("error (NOT_FOUND)")
        assert terminal.end() == 3
    assert not list(Path(shell.home).glob("chat-*"))
