"""`codesdk approvals` and `codesdk top`: all sessions of a place at once."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import EDIT
from tests.cli.shell import Live, Shell, Terminal
from tests.daemon.rig import Daemon, daemon

from codesdk.script import dump, parse_script

WAITS = dump(parse_script(EDIT, "script.yaml"))


@pytest.fixture
def served(shell: Shell) -> Iterator[Daemon]:
    """A daemon with one session that waits for an answer about an edit."""
    with daemon(shell.data) as running:
        yield running


def ask(served: Daemon, shell: Shell, title: str) -> tuple[str, str]:
    """Start a task and return session and call once it waits."""
    session = served.session(WAITS, permission_mode="auto", workspace=str(shell.workspace), title=title)
    served.post(f"/v1/sessions/{session}/tasks", {"message": "Go."})
    for event in served.stream(session):
        if event["type"] == "approval.requested":
            return session, event["payload"]["tool_call_id"]
    raise AssertionError("nothing was asked")


def until(served: Daemon, session: str, kind: str) -> None:
    next(event for event in served.stream(session) if event["type"] == kind)


def test_what_waits_in_all_sessions_is_listed(shell: Shell, served: Daemon):
    first, second = ask(served, shell, "One"), ask(served, shell, "Two")
    for env in ({}, {"CODESDK_URL": served.url}):
        rows = shell.codesdk("approvals", "--json", **env).lines
        assert {(row["session_id"], row["tool_call_id"]) for row in rows} == {first, second}
        listed = shell.codesdk("approvals", **env).out
        for session, call in (first, second):
            assert f"{session[-8:]} {call}  workspace.edit" in listed


def test_what_comes_later_is_printed_when_it_comes(shell: Shell, served: Daemon):
    with Live(shell, "approvals", "--watch", "--json", CODESDK_URL=served.url) as watching:
        stdout = watching.process.stdout
        assert stdout is not None
        session, _ = ask(served, shell, "One")
        assert session in stdout.readline()
        other, _ = ask(served, shell, "Two")
        assert other in stdout.readline()


def test_a_person_answers_one_after_the_other(shell: Shell, served: Daemon):
    approved, denied = ask(served, shell, "One")[0], ask(served, shell, "Two")[0]
    with Terminal(shell, "approvals", CODESDK_URL=served.url) as terminal:
        terminal.expect(f"{approved[-8:]} One")
        terminal.expect("2 waiting")
        terminal.expect("- Helo")
        terminal.expect("+ Hello")
        terminal.expect("q quit > ")
        terminal.type("s\n")
        terminal.expect('"new": "Hello"')
        terminal.expect("q quit > ")
        terminal.type("a\n")
        terminal.expect("approved")
        terminal.expect(f"{denied[-8:]} Two")
        terminal.expect("q quit > ")
        terminal.type("d it is fine as it is\n")
        terminal.expect("denied")
        terminal.expect("That was all.")
        assert terminal.end() == 0
    until(served, approved, "task.completed")
    until(served, denied, "task.completed")
    events = served.get(f"/v1/sessions/{denied}/events", types="tool.call.denied")["events"]
    assert [event["payload"]["reason"] for event in events] == ["it is fine as it is"]
    assert shell.codesdk("approvals").out == "Nothing waits for an answer.\n"


def test_an_answer_that_comes_too_late_is_said_to_be(shell: Shell, served: Daemon):
    session, call = ask(served, shell, "One")
    with Terminal(shell, "approvals", "--watch") as terminal:
        terminal.expect("q quit > ")
        served.post(f"/v1/sessions/{session}/calls/{call}/approve")
        until(served, session, "task.completed")
        terminal.type("A\n")
        terminal.expect("waits for an answer in session")
        terminal.expect("nothing waits; watching")
        other, _ = ask(served, shell, "Two")
        terminal.expect(f"{other[-8:]} Two")
        terminal.expect("q quit > ")
        terminal.type("q\n")
        assert terminal.end() == 0


def test_sessions_at_work_stand_first_with_what_they_do(shell: Shell, served: Daemon):
    session, _ = ask(served, shell, "Busy")
    idle = served.session(title="Idle")
    for env in ({}, {"CODESDK_URL": served.url}):
        (look,) = shell.codesdk("top", "--once", "--json", **env).lines
        assert [line["session"]["session_id"] for line in look["sessions"]] == [session, idle]
        counts = [look[name] for name in ("open", "running", "queued", "waiting", "events_per_s")]
        assert counts == [2, 1, 0, 1, None]
        head = served.get(f"/v1/sessions/{session}/events")["head"]
        assert look["sessions"][0]["events"] == head
        shown = shell.codesdk("top", **env).out
        assert shown.startswith("2 open sessions · 1 running · 0 queued · 1 answer wanted · $0.0")
        assert "waits for 1 answer" in shown


def test_top_shows_events_a_second_and_ends_with_ctrl_c(shell: Shell, served: Daemon):
    ask(served, shell, "Busy")
    with Terminal(shell, "top", "--interval", "0.1", CODESDK_URL=served.url) as terminal:
        terminal.expect("events/s")
        terminal.expect("Busy")
        terminal.type("\x03")
        assert terminal.end() == 130
