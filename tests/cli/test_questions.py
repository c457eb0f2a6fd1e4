"""Questions on the command line: listed, answered from a second terminal, over a daemon, and in place."""

from tests.cli.shell import Live, Shell, Terminal
from tests.daemon.rig import daemon, problem

from codesdk.script import dump, parse_script

ASKS = """\
turns:
  - steps:
      - call:
          tool: user.ask
          input:
            question: Which database?
            options: [SQLite, Postgres]
  - steps:
      - text: Fine.
"""


def options(shell: Shell) -> list[str]:
    return [
        "--runtime=scripted",
        "--script",
        shell.write_script(ASKS),
        "--workspace",
        "ws",
        "--permission-mode",
        "auto",
    ]


def start(shell: Shell) -> Terminal:
    return Terminal(shell, "run", "x", *options(shell), TERM="xterm-256color")


def test_a_person_at_the_terminal_is_asked_in_place_and_may_type_a_number(shell: Shell):
    with start(shell) as terminal:
        terminal.expect("The model asks:")
        terminal.expect("Which database?")
        terminal.expect("2  Postgres")
        terminal.expect("decline > ")
        terminal.type("2\n")
        terminal.expect("Fine.")
        assert terminal.end() == 0
    events = shell.codesdk("events", "last", "--json").lines
    assert [e["payload"]["answer"] for e in events if e["type"] == "approval.answered"] == ["Postgres"]


def test_an_empty_line_declines(shell: Shell):
    with start(shell) as terminal:
        terminal.expect("decline > ")
        terminal.type("\n")
        terminal.expect("Declined at the terminal.")
        terminal.expect("Fine.")
        assert terminal.end() == 0


def test_a_question_is_listed_and_answered_from_a_second_terminal(shell: Shell):
    with Live(shell, "run", "x", *options(shell), "--interactive", "--json") as asking:
        asked = asking.until("approval.requested")["payload"]
        (row,) = shell.codesdk("approvals", "--json").lines
        assert (row["kind"], row["text"], row["options"]) == (
            "question",
            "Which database?",
            ["SQLite", "Postgres"],
        )
        listed = shell.codesdk("answer", "last").out
        assert "Which database?" in listed
        assert f"answer {row['session_id'][-8:]} {row['approval_id'][-8:]} …" in listed
        assert "is a question" in shell.codesdk("approve", "last", row["tool_call_id"]).err
        assert shell.codesdk("answer", "last", asked["approval_id"][-8:], "Both").out == "Answered.\n"
        answered = asking.until("approval.answered")["payload"]
        assert (answered["decision"], answered["answer"]) == ("approve", "Both")
        asking.until("task.completed")


def test_over_a_daemon_it_is_asked_and_answered_over_http(shell: Shell):
    with daemon(shell.data) as served:
        plays = dump(parse_script(ASKS, "script.yaml"))
        session = served.session(plays, permission_mode="auto", workspace=str(shell.workspace))
        served.post(f"/v1/sessions/{session}/tasks", {"message": "Go."})
        asked = next(e for e in served.stream(session) if e["type"] == "approval.requested")["payload"]
        with Terminal(shell, "approvals", CODESDK_URL=served.url) as terminal:
            terminal.expect("Which database?")
            terminal.expect("q quit > ")
            terminal.type("n\n")
            assert terminal.end() == 0
        path = f"/v1/sessions/{session}/questions/{asked['approval_id']}/answer"
        served.post(path, {"text": "SQLite"})
        assert problem(served.http.post(path, json={"text": "Postgres"})) == (409, "CONFLICT")
        next(e for e in served.stream(session) if e["type"] == "task.completed")
