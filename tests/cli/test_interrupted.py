"""A session whose process was killed: `verify` calls it interrupted until something closes it, and not broken."""

import signal
import sqlite3

import pytest
from tests.cli.shell import Live, Shell

STALLED = "turns: [{steps: [{text: Hm}, {stall: stopped}]}]"


@pytest.fixture
def killed(shell: Shell) -> Shell:
    """A data directory whose only session lost its process in the middle of a task."""
    name = shell.write_script(STALLED)
    with Live(
        shell, "run", "Do it", "--runtime=scripted", "--script", name, "--workspace", "ws", "--json"
    ) as running:
        running.until("model.output.delta")
        running.signal(signal.SIGKILL)
        running.process.wait()
    return shell


def test_it_is_interrupted_until_it_is_closed(killed: Shell):
    verified = killed.codesdk("verify", "last")
    assert verified.code == 7
    assert verified.out.startswith(f"! {killed.last()}: ")
    assert "all nine invariants hold so far; its last task was interrupted" in verified.out
    (as_json,) = killed.codesdk("verify", "--all", "--json").lines
    assert (as_json["ok"], as_json["interrupted"], as_json["findings"]) == (True, True, [])
    assert "7     a session was interrupted" in killed.codesdk("--help").out

    assert killed.codesdk("close", "last").code == 0
    (as_json,) = killed.codesdk("verify", "last", "--json").lines
    assert (as_json["ok"], as_json["interrupted"]) == (True, False)


def test_what_is_broken_stays_broken(killed: Shell):
    with sqlite3.connect(killed.data / "codesdk.db") as db:
        db.execute("DELETE FROM events WHERE seq = 3")
    db.close()
    (as_json,) = killed.codesdk("verify", "last", "--json").lines
    assert (killed.codesdk("verify", "last").code, as_json["ok"], as_json["interrupted"]) == (1, False, False)


def test_a_bundle_says_the_same(killed: Shell):
    from tests.bundle.unpacked import Unpacked

    assert killed.codesdk("bundle", "last", "-o", "b.tar.gz").code == 0
    bundle = Unpacked((killed.home / "b.tar.gz").read_bytes())
    assert bundle.json("verify.json") == {"ok": True, "interrupted": True, "findings": []}
