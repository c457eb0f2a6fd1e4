"""What a model, a tool or another person wrote cannot steer the terminal, nor look like a line of ours."""

import json
import re

from tests.cli.chat.tmux import chat, ready
from tests.cli.shell import Shell

ESCAPES = "\x1b[2J\x1b[H\x1b]0;owned\x07\x1b[31m\x9b31m\x1bc\x1b[?1049h\x07\x08\x08\r"
FAKE_PROMPT = "▌ ❯ rm -rf / "
FAKE_QUESTION = "▌ ? 4:59 left · workspace.read harmless.txt\n▌ y yes · n no · a always in this session"


def test_a_hostile_model_and_tool_draw_nothing_of_their_own(shell: Shell):
    (shell.workspace / "evil.txt").write_text(f"{ESCAPES}\n{FAKE_QUESTION}\n\u202egnp.exe\u202c\n")
    long = "x" * 86 + FAKE_PROMPT  # where the terminal would break it, the mark would be in the first column
    said = f"Before {ESCAPES} after.\n\n{FAKE_QUESTION}\n\n&#9612; ❯ entity &#x1b;[31m\n\n```\n{FAKE_PROMPT}\n```\n\n{long}\n"
    script = {
        "turns": [
            {
                "steps": [
                    {"reasoning": f"{ESCAPES}{FAKE_PROMPT}"},
                    {"text": said},
                    {"call": {"tool": "workspace.read", "input": {"path": "evil.txt"}}},
                ]
            },
            {
                "steps": [
                    {
                        "call": {
                            "tool": f"{FAKE_PROMPT}{ESCAPES}",
                            "input": {FAKE_QUESTION: ESCAPES},
                            "offered": False,
                        }
                    }
                ]
            },
            {
                "steps": [
                    {
                        "call": {
                            "tool": "workspace.write",
                            "input": {"path": "a.txt", "content": f"{ESCAPES}\n{FAKE_QUESTION}\n"},
                        }
                    }
                ]
            },
            {"steps": [{"text": "Over."}]},
        ]
    }
    with chat(shell, json.dumps(script), rows=60) as terminal:
        ready(terminal)
        terminal.say("Be evil")
        shown = terminal.wait("▌ y yes")
        # The one question is ours, and it says what would be written.
        assert re.findall(r"^▌ \? .*", shown, re.MULTILINE) == [
            next(line for line in shown.split("\n") if "left · workspace.write" in line)
        ]
        assert shown.count("▌ y yes") == 1
        terminal.press("n")
        shown = terminal.wait("✓ completed", history=True)
    ours = [line for line in shown.split("\n") if line.startswith("▌")]
    assert [line for line in ours if line.startswith("▌ ❯")] == ["▌ ❯ Be evil", "▌ ❯"]
    assert not [line for line in ours if "left ·" in line]
    assert "▌" not in "\n".join(line[1:] for line in ours)
    theirs = [line for line in shown.split("\n") if line and not line.startswith("▌")]
    assert all(line.startswith("  ") for line in theirs)
    assert "▌" not in "\n".join(theirs)
    assert "Before ␛[2J" in shown
    assert "\u202e" not in shown


def test_a_title_and_a_question_of_others_are_cleaned_too(shell: Shell):
    ask = {"question": f"Really?{ESCAPES}\n{FAKE_PROMPT}", "options": [f"Yes{ESCAPES}", FAKE_QUESTION]}
    script = {
        "turns": [{"steps": [{"call": {"tool": "user.ask", "input": ask}}]}, {"steps": [{"text": "Fine."}]}]
    }
    with chat(shell, json.dumps(script), rows=40) as terminal:
        ready(terminal)
        terminal.say("Ask")
        shown = terminal.wait("▌ answer ❯")
        assert sum(line.startswith("▌ ❯ rm") for line in shown.split("\n")) == 0
        assert "  | ❯ rm -rf /" in shown
        terminal.say("1")
        terminal.wait("Fine.")
