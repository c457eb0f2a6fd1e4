"""From one session to another, in a real terminal: moved, rewound, forked, continued, shared with others."""

import json

from tests.cli.chat.tmux import Tmux, chat, chat_command, ready
from tests.cli.conftest import EDIT
from tests.cli.shell import Shell
from tests.daemon.rig import daemon

ANSWERS = "turns: [{steps: [{text: The first answer.}]}, {steps: [{text: The second answer.}]}, {steps: [{text: The third answer.}]}]"


def done(count: int):
    return lambda shown: shown.count("✓ completed") == count and "/help" in shown


def test_rewind_goes_back_to_before_a_message_in_a_copy(shell: Shell):
    with chat(shell, ANSWERS) as terminal:
        ready(terminal)
        terminal.say("One")
        terminal.wait(done(1))
        terminal.say("Two")
        terminal.wait(done(2))
        terminal.say("/rewind")
        shown = terminal.wait("    2  Two")
        assert "    1  One\n    2  Two" in shown
        terminal.say("/rewind 2")
        terminal.wait("▌ ❯ Two")
        terminal.wait("This is a copy that ends before that message")
        terminal.press("C-u")
        terminal.say("Another two")
        terminal.wait(lambda text: "▌ ❯ Another two" in text and "/help" in text)
        terminal.wait(lambda text: text.rstrip().split("\n")[-1].endswith("/help"))
        terminal.say("/sessions")
        shown = terminal.wait("/sessions N continues")
    rows = shell.codesdk("sessions", "--json").lines
    assert len(rows) == 2
    said = shell.codesdk("transcript", rows[0]["session_id"], "--json").out
    assert "Another two" in said
    assert '"One"' in said
    assert '"Two"' not in said


def test_a_session_moves_to_another_runtime_and_says_so(shell: Shell):
    with chat(shell, ANSWERS) as terminal:
        ready(terminal)
        terminal.say("One")
        terminal.wait(done(1))
        terminal.say("/runtime minicode")
        terminal.wait("▌ minicode · auto")
        terminal.say("Two")
        shown = terminal.wait("✗ failed · AUTH_REQUIRED")  # the script was an option of the other runtime
        assert "▌ ❯ Two" in shown
        terminal.say("/policy ask")
        terminal.wait("▌ minicode · ask")
        terminal.say("/model some-model")
        terminal.wait("▌ minicode · some-model · ask")
        terminal.say("/runtime nonsense")
        terminal.wait("There is no runtime")
        terminal.wait("▌ ❯ /runtime nonsense")
    row = shell.codesdk("sessions", "--json").lines[0]
    assert (row["runtime"], row["permission_mode"], row["model"]) == ("minicode", "ask", "some-model")


def test_commands_without_a_session_prepare_the_next_one(shell: Shell):
    with chat(shell, ANSWERS) as terminal:
        ready(terminal)
        for words, answer in {
            "/cost": "0 model requests",
            "/tools": "known with the first message",
            "/undo": "There is no session yet",
            "/nonsense": "There is no command /nonsense",
            "/policy ask": "will begin in the mode ask",
        }.items():
            terminal.press("C-u")
            terminal.say(words)
            terminal.wait(answer)
        terminal.press("C-u")
        terminal.say("/help")
        terminal.wait("▌ @path")
        terminal.say("One")
        terminal.wait("✓ completed")
        terminal.say("/export talk.md")
        terminal.wait("Written to talk.md.")
        terminal.say("/export talk.md")
        terminal.wait("talk.md is there already")
    assert "The first answer." in (shell.home / "talk.md").read_text()
    assert shell.codesdk("sessions", "--json").lines[0]["permission_mode"] == "ask"


def test_a_second_chat_shows_what_happens_in_the_first_and_answers_for_it(shell: Shell):
    with chat(shell, EDIT) as first:
        ready(first)
        first.say("Fix it")
        first.wait("y yes")
        command = chat_command("--continue", "--workspace", "ws")
        with Tmux(shell, command) as second:
            shown = second.wait("y yes")
            assert " ❯ Fix it" in shown
            assert "  - Helo\n  + Hello\n" in shown
            second.press("y")
            second.wait("✓ completed")
            shown = first.wait("✓ completed")
            assert "▌   ✓ approved by chat-" in shown
            # The first one ends, and with it the process that ran the sessions: the second takes its place.
            first.press("C-d")
            assert first.end() == 0
            second.say("/policy ask")
            second.wait("▌ scripted · ask")


def test_a_daemon_that_restarts_is_found_again_and_a_deleted_session_is_named(shell: Shell):
    script = json.dumps({"turns": [{"steps": [{"text": "An answer."}]}], "loop": True})
    with daemon(shell.data) as running:
        port = running.url.rpartition(":")[2]
        with chat(shell, script, "--url", running.url) as terminal:
            ready(terminal)
            terminal.say("One")
            terminal.wait(done(1))
            running.stop()
            terminal.say("Two")
            terminal.wait("▌ sending · ")
            terminal.type("yna")  # keys meanwhile go into the line, and stay there
            terminal.press("F5", "Left", "End")
            terminal.wait("▌ ❯ yna")
            with daemon(shell.data, "--port", port) as again:
                terminal.wait(done(2))
                assert again.url == running.url
                terminal.wait("▌ ❯ yna")
                terminal.press("C-u")
                assert shell.codesdk("delete", "last", "--yes").code == 0
                terminal.say("Three")
                terminal.wait("This session was deleted. The next message begins a new one.")
                terminal.wait("▌ ❯ Three")
