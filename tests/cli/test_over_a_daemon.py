"""The commands, with a daemon in place of a data directory."""

import contextlib
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bundle.unpacked import Unpacked, written
from tests.cli.conftest import EDIT
from tests.cli.shell import Live, Shell
from tests.daemon.rig import Daemon, daemon

from codesdk.local.tokens import TokenFile

WAIT = "turns: [{steps: [{text: Say more.}, {await_steer: true}, {text: Thanks.}]}]"
FOREVER = "turns: [{steps: [{text: Begin}, {delay_s: 600}]}]\nloop: true"


@pytest.fixture
def served(shell: Shell) -> Iterator[Daemon]:
    """A daemon on the shell's data directory."""
    with daemon(shell.data) as running:
        yield running


@pytest.fixture(scope="module")
def copied(stored: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A copy of the stored session, served by a daemon; and its address."""
    home = tmp_path_factory.mktemp("copied")
    shutil.copytree(stored.data, home / ".codesdk")
    with daemon(home / ".codesdk") as running:
        yield Shell(home), running.url


def away(shell: Shell) -> Shell:
    """A terminal elsewhere: it has nothing of the data directory."""
    (shell.home / "elsewhere").mkdir(exist_ok=True)
    return Shell(shell.home / "elsewhere")


@pytest.mark.parametrize(
    "args",
    [
        ["sessions"],
        ["sessions", "--json", "--status", "open"],
        ["events", "last"],
        ["events", "last", "--json", "--after", "3", "--type", "t*"],
        ["transcript", "last"],
        ["transcript", "last", "--json"],
        ["artifacts", "last"],
        ["artifacts", "last", "--json"],
        ["grants", "last"],
        ["approve", "last"],
        ["verify", "--all"],
        ["verify", "last", "--json"],
        ["replay", "last"],
        ["replay", "last", "--json"],
        ["events", "nosuchsession"],
        ["artifacts", "last", "art_nothere"],
        ["revoke", "last", "workspace.write", "--json"],
    ],
)
def test_a_command_that_looks_says_the_same_of_a_daemon_as_of_its_directory(
    copied: tuple[Shell, str], args: list[str]
):
    shell, url = copied
    here = shell.codesdk(*args)
    there = away(shell).codesdk(*args, CODESDK_URL=url)
    assert (there.code, there.out, there.err) == (here.code, here.out, here.err)
    assert here.out or here.err


def test_an_artifact_of_a_daemon_is_read_byte_by_byte(copied: tuple[Shell, str]):
    shell, url = copied
    for row in away(shell).codesdk("artifacts", "last", "--json", CODESDK_URL=url).lines:
        name = row["ref"]["artifact_id"]
        there = away(shell).codesdk("artifacts", "last", name, CODESDK_URL=url)
        assert there.out == shell.codesdk("artifacts", "last", name).out != ""


def test_a_task_is_run_by_a_daemon_and_approved_from_a_second_terminal(shell: Shell, served: Daemon):
    here, url = away(shell), served.url
    script = here.write_script(EDIT)
    options = [
        "--runtime=scripted",
        "--script",
        script,
        "--workspace",
        str(shell.workspace),
        "--permission-mode",
        "auto",
    ]
    with Live(here, "run", "x", *options, "--interactive", "--json", CODESDK_URL=url) as live:
        call = live.until("approval.requested")["payload"]["tool_call_id"]
        session = live.seen[0]["trace"]["session_id"]
        listed = here.codesdk("--url", url, "approve", "last")
        assert call in listed.out
        assert f"codesdk --url {url} deny {session[-8:]} {call[-8:]}" in listed.out
        assert here.codesdk("approve", session, call, "--attempt", "9", CODESDK_URL=url).code == 4
        assert "waits for 1 answer" in here.codesdk("sessions", CODESDK_URL=url).out
        approved = here.codesdk("approve", session, call[-8:], "--session-wide", "--json", CODESDK_URL=url)
        assert approved.lines == [
            {"ok": True, "session_id": session, "tool_call_id": call, "reached": "running"}
        ]
        assert live.end().code == 0
    assert live.seen == served.get(f"/v1/sessions/{session}/events", limit=1000)["events"]
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"
    assert "workspace.edit" in here.codesdk("grants", "last", CODESDK_URL=url).out
    assert here.codesdk("revoke", "last", "workspace.edit", CODESDK_URL=url).code == 0
    undone = here.codesdk("undo", "last", CODESDK_URL=url)
    assert (undone.code, undone.out) == (0, "restored  hello.txt\n")
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_run_goes_through_the_daemon_that_holds_the_directory(shell: Shell, served: Daemon):
    done = shell.codesdk(
        "run", "x", "--runtime=scripted", "--script", shell.write_script(EDIT), "--workspace", "ws"
    )
    assert done.code == 0, done.err
    assert "denied" in done.out  # nobody could be asked
    session = shell.last()
    again = shell.codesdk("run", "y", "--session", session, "--json")
    assert (again.code, again.lines[0]["type"]) == (0, "task.started")
    assert served.get(f"/v1/sessions/{session}/verify")["ok"]
    refused = shell.codesdk(
        "run", "x", "--runtime=scripted", "--script", "script.yaml", "--policy", "rules.yaml", "--json"
    )
    assert (refused.code, "start codesdkd with it" in refused.error["message"]) == (2, True)
    refused = shell.codesdk("run", "x", "--session", session, "--script", "script.yaml", "--json")
    assert (refused.code, "leave out --script" in refused.error["message"]) == (2, True)


def test_an_interrupted_session_is_resumed_by_the_daemon(shell: Shell, served: Daemon):
    script = shell.write_script(FOREVER)
    with Live(shell, "run", "x", "--runtime=scripted", "--script", script, "--json") as live:
        live.until("model.output.delta")
        served.process.kill()
        served.process.wait(60)
        port = served.url.rpartition(":")[2]
        with daemon(shell.data, "--port", port):
            failed = live.until("task.failed")
            assert failed["payload"]["error"]["code"] == "INTERRUPTED"
            assert live.end().code == 1
            assert [event["seq"] for event in live.seen] == list(range(1, len(live.seen) + 1))
            with Live(shell, "resume", "last", "--json") as resumed:
                resumed.until("model.output.delta")
                assert shell.codesdk("stop", "last").code == 0
                assert resumed.end().code == 130


def test_a_task_of_a_daemon_is_steered_stopped_and_followed(shell: Shell, served: Daemon):
    here, url = away(shell), served.url
    script = here.write_script(WAIT)
    with Live(here, "run", "x", "--runtime=scripted", "--script", script, "--json", CODESDK_URL=url) as live:
        live.until("model.output.delta")
        with Live(here, "events", "last", "--follow", "--json", CODESDK_URL=url) as follower:
            follower.until("model.output.delta")
            assert here.codesdk("steer", "last", "more", CODESDK_URL=url).code == 0
            follower.until("task.completed")
            assert live.end().code == 0
            assert follower.seen == live.seen
            follower.signal(signal.SIGINT)
            done = follower.end()
            assert (done.code, done.err) == (130, "")
    assert here.codesdk("stop", "last", CODESDK_URL=url).code == 4
    script = here.write_script(FOREVER)
    with Live(here, "run", "x", "--runtime=scripted", "--script", script, "--json", CODESDK_URL=url) as live:
        live.until("model.output.delta")
        assert here.codesdk("stop", "last", "--reason", "enough", CODESDK_URL=url).code == 0
        assert live.end().code == 130
        assert live.seen[-1]["payload"]["reason"] == "enough"


def test_ctrl_c_stops_the_task_in_the_daemon(shell: Shell, served: Daemon):
    with Live(
        shell, "run", "x", "--runtime=scripted", "--script", shell.write_script(FOREVER), "--json"
    ) as live:
        live.until("model.output.delta")
        live.signal(signal.SIGINT)
        assert live.end().code == 130
        assert live.seen[-1]["type"] == "task.stopped"


def test_the_runtimes_of_a_daemon_are_those_it_offers(shell: Shell):
    with daemon(shell.data, "--runtimes", "scripted") as running:
        listed = shell.codesdk("runtimes", "--json", CODESDK_URL=running.url)
        assert [row["name"] for row in listed.lines] == ["scripted"]
        assert shell.codesdk("runtimes", "claude", CODESDK_URL=running.url).code == 3
        refused = shell.codesdk("run", "x", "--runtime", "claude", "--json", CODESDK_URL=running.url)
        assert (refused.code, refused.error["code"]) == (2, "FORBIDDEN")


def test_a_token_comes_from_the_environment_and_is_never_shown(shell: Shell):
    secret, _ = TokenFile(shell.data).add("ann", ["read"])
    with daemon(shell.data) as running:
        here = away(shell)
        refused = here.codesdk("sessions", "--json", CODESDK_URL=running.url)
        assert (refused.code, refused.error["code"]) == (2, "AUTH_REQUIRED")
        allowed = here.codesdk("sessions", "--json", CODESDK_URL=running.url, CODESDK_TOKEN=secret)
        assert (allowed.code, allowed.out, allowed.err) == (0, "", "")
        script = here.write_script(EDIT)
        refused = here.codesdk(
            "--token", secret, "run", "x", "--runtime=scripted", "--script", script, CODESDK_URL=running.url
        )
        assert (refused.code, secret in refused.out + refused.err) == (2, False)
        assert "scope run" in refused.err


@pytest.mark.parametrize(
    "command", [["tokens"], ["policy", "check", "--tool", "x"], ["demo"], ["artifacts", "--gc"]]
)
def test_a_command_on_a_directory_refuses_the_address_of_a_daemon(shell: Shell, command: list[str]):
    refused = shell.here(*command, CODESDK_URL="http://127.0.0.1:1")
    assert refused.code == 2
    assert "data directory of this machine" in refused.err
    assert shell.here(command[0], "--help", CODESDK_URL="http://127.0.0.1:1").code == 0
    assert not shell.data.exists()


def test_an_address_that_nobody_answers_at_is_said_so(shell: Shell):
    failed = shell.codesdk("--url", "http://127.0.0.1:1", "sessions", "--json")
    assert (failed.code, failed.error["code"]) == (4, "OVERLOADED")
    assert "cannot be reached" in failed.error["message"]
    assert shell.codesdk("--url", "nonsense", "sessions").code == 2
    assert shell.codesdk("--url", "http://127.0.0.1:1", "--data-dir", "x", "sessions").code == 2
    assert "Go" not in failed.out


def test_a_data_directory_that_is_named_comes_before_the_address_in_the_environment(stored: Shell):
    named = stored.codesdk("--data-dir", str(stored.data), "sessions", CODESDK_URL="http://127.0.0.1:1")
    assert (named.code, named.out) == (0, stored.codesdk("sessions").out)
    assert Path(stored.data).exists()


def test_the_audit_and_a_bundle_come_from_a_daemon(copied: tuple[Shell, str]):
    shell, url = copied
    there = away(shell)
    records = there.codesdk("audit", "last", "--category", "tool", "--json", CODESDK_URL=url)
    assert records.lines == shell.codesdk("audit", "last", "--category", "tool", "--json").lines != []
    assert there.codesdk("audit", "--everybody", "--limit", "3", CODESDK_URL=url).out.count("\n") == 3
    assert "the chain is whole" in there.codesdk("audit", "--verify", CODESDK_URL=url).out
    made = there.codesdk("bundle", "last", "-o", "it.tar.gz", CODESDK_URL=url)
    assert (made.code, made.err) == (0, "")
    assert "✓ whole" in there.codesdk("bundle", "--show", "it.tar.gz").out
    tried = there.codesdk("gc", "--max-size", "1B", "--dry-run", "--json", CODESDK_URL=url)
    assert len(tried.lines[0]["sessions"]) == 1


def bundle_of(shell: Shell, **env: str) -> Unpacked:
    made = shell.codesdk("bundle", "last", "-o", "it.tar.gz", **env)
    assert (made.code, made.err) == (0, "")
    return written(shell.home / "it.tar.gz")


def test_a_bundle_from_a_held_directory_has_what_the_daemon_says_of_itself(shell: Shell):
    with daemon(shell.data, "--policy", "edits", "--grace", "3") as running:
        running.run(running.session())
        bundle = bundle_of(shell)
        health, config = bundle.json("health.json"), bundle.json("config.json")
        assert (health["process"]["status"], health["process"]["ready"]) == ("ok", True)
        assert config["launch"]["grace_s"] == 3.0
        assert config["policy"]["rules_hash"] is not None

        # It refuses: the owner of the directory reads what is stored, and asks over the control socket.
        refused = bundle_of(shell, CODESDK_TOKEN="of-nobody")
        again = refused.json("config.json")
        assert again["policy"] == config["policy"]
        assert config["policy"]["rules"]
        assert again["launch"]["limits"] == config["launch"]["limits"]
        assert (refused.json("health.json")["process"], "grace_s" in again["launch"]) == (None, False)

        running.stop(signal.SIGKILL)
        left = bundle_of(shell)
    assert left.json("health.json")["writer_running"] is False
    assert left.json("config.json")["launch"] is None


def test_a_token_that_may_run_is_enough_to_run_and_scopes_are_checked_before_anything_starts(shell: Shell):
    tokens = TokenFile(shell.data)
    run, approve = tokens.add("ann", ["run"])[0], tokens.add("ann", ["approve"])[0]
    with daemon(shell.data) as running:
        here = away(shell)
        options = (
            "--runtime=scripted",
            "--script",
            here.write_script(EDIT),
            "--workspace",
            str(here.workspace),
            "--json",
        )
        done = here.codesdk("run", "x", *options, "--url", running.url, "--token", run)
        assert (done.code, done.lines[-1]["type"]) == (0, "task.completed")
        refused = here.codesdk("run", "x", *options, "--url", running.url, "--token", approve)
        assert (refused.code, refused.error["code"], refused.out) == (2, "FORBIDDEN", "")
        listed = here.codesdk("sessions", "--json", "--url", running.url, "--token", approve)
        assert len(listed.lines) == 1

        # Questions of an interactive session would wait for somebody who cannot answer.
        running.http.headers["authorization"] = f"Bearer {run}"
        session = running.session(workspace=str(here.workspace))
        again = ("run", "x", "--session", session, "--json", "--url", running.url, "--token", run)
        refused = here.codesdk(*again)
        assert (refused.code, refused.out) == (2, "")
        assert "the scope approve" in refused.error["message"]
        assert here.codesdk(*again, "--interactive").code == 0


def test_a_daemon_verifies_a_session_with_the_same_words(shell: Shell):
    """Also what is no law of the log: that nobody else can read what a session is equipped with."""
    with daemon(shell.data) as running:
        session = running.session(secrets=["a secret of ours"])
        running.run(session)
        (shell.data / "equipment" / session).chmod(0o644)
        running.stop()
        database = shell.data / "codesdk.db"
        with contextlib.closing(sqlite3.connect(database)) as db, db:
            db.execute("DELETE FROM events WHERE seq = 4")
    here = shell.codesdk("verify", session, "--json")
    with daemon(shell.data) as running:
        there = shell.codesdk("verify", session, "--json", "--url", running.url)
        shown = shell.codesdk("verify", session, "--url", running.url)
    assert (here.code, there.code) == (1, 1)
    assert here.lines == there.lines
    assert {"2", "equipment"} <= {finding["invariant"] for finding in here.lines[0]["findings"]}
    assert shown.out == shell.codesdk("verify", session).out
    assert "equipment: " in shown.out
    told = shell.codesdk("doctor", "--json").lines[0]["data_dir"]
    (exposed,) = [each["message"] for each in here.lines[0]["findings"] if each["invariant"] == "equipment"]
    assert (told["ok"], told["state"].endswith(exposed)) == (False, True)
