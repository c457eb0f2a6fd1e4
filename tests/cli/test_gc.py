"""`codesdk gc`: limits as people write them, what went, and what would go."""

from pathlib import Path

from tests.cli.shell import Live, Shell
from tests.daemon.rig import daemon

TALK = "turns: [{steps: [{text: Hi.}]}]"


def test_without_limits_no_session_goes(shell: Shell):
    assert shell.run(TALK).code == 0
    done = shell.codesdk("gc", "--json")
    assert (done.code, done.lines[0]["sessions"], done.lines[0]["dry_run"]) == (0, [], False)
    assert shell.last()


def test_old_sessions_go_and_a_dry_run_says_which(shell: Shell):
    assert shell.run(TALK).code == 0
    session = shell.last()
    assert shell.codesdk("gc", "--older-than", "1d", "--json").lines[0]["sessions"] == []
    tried = shell.codesdk("gc", "--older-than", "0d", "--dry-run")
    assert tried.code == 0
    assert tried.out.startswith(f"would remove  {session}")
    assert shell.last() == session
    done = shell.codesdk("gc", "--max-size", "1kB")
    assert (done.code, done.out.splitlines()[0].split()[:2]) == (0, ["removed", session])
    assert "removed 1 session; it was " in done.out
    assert shell.codesdk("sessions", "--json").lines == []
    removed = shell.codesdk("audit", session, "--category", "storage", "--json").lines
    assert [line["action"] for line in removed] == ["retention.session_removed"]
    assert shell.codesdk("audit", "--verify").code == 0


def test_a_directory_that_somebody_else_writes_is_left_to_them(shell: Shell):
    script = shell.write_script("turns: [{steps: [{stall: closed}]}]")
    with Live(
        shell, "run", "Wait", "--runtime=scripted", "--script", script, "--workspace", "ws", "--json"
    ) as live:
        live.until("task.started")
        assert shell.codesdk("gc").code == 4


def test_limits_that_make_no_sense_are_refused(stored: Shell, shell: Shell):
    for option, value in (("--older-than", "soon"), ("--max-size", "2 apples"), ("--audit-older-than", "30")):
        assert stored.codesdk("gc", option, value).code == 2
    assert shell.codesdk("gc").code == 3


def test_a_daemon_that_holds_the_directory_does_it_itself(tmp_path: Path, shell: Shell):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        running.run(session)
        done = shell.codesdk("--data-dir", str(tmp_path / "data"), "gc", "--max-size", "1B", "--json")
        assert [removed["session_id"] for removed in done.lines[0]["sessions"]] == [session]
