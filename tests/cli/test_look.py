import json
import sqlite3

import pytest
from tests.cli.shell import Live, Shell, Terminal

SAY = "turns: [{steps: [{text: Hi.}]}]"


def test_sessions_are_listed_with_what_they_are_doing(stored: Shell):
    listed = stored.codesdk("sessions")
    assert listed.code == 0
    header, row = listed.out.splitlines()
    assert header.split() == ["SESSION", "TITLE", "RUNTIME", "STATE", "EVENTS", "UPDATED"]
    assert row.split()[0] == stored.last()
    for words in ("A typo", "scripted", "open"):
        assert words in row


def test_sessions_as_json_are_the_stored_rows_and_two_counts(stored: Shell):
    (row,) = stored.codesdk("sessions", "--json").lines
    assert (row["status"], row["title"], row["waiting"]) == ("open", "A typo", 0)
    assert row["events"] == len(stored.codesdk("events", "last", "--json").lines)
    assert stored.codesdk("sessions", "--status", "closed", "--json").lines == []
    assert "No sessions yet" in stored.codesdk("sessions", "--status", "closed").out


def test_events_are_one_line_each_with_their_gist(stored: Shell):
    day, *lines = stored.codesdk("events", "last").out.splitlines()
    events = stored.codesdk("events", "last", "--json").lines
    assert day == events[0]["time"][:10] or len(day) == 10
    assert [(int(line.split()[0]), line.split()[2]) for line in lines] == [
        (e["seq"], e["type"]) for e in events
    ]
    assert any("workspace.read hello.txt" in line for line in lines)
    assert any("changed hello.txt: Edited hello.txt at line 1." in line for line in lines)


def test_events_can_be_chosen_by_type_and_place(stored: Shell):
    chosen = stored.codesdk("events", "last", "--json", "--type", "task.*", "--type", "usage.reported").lines
    assert [e["type"] for e in chosen] == [
        "task.started",
        "usage.reported",
        "usage.reported",
        "task.completed",
    ]
    after = stored.codesdk("events", "last", "--json", "--after", str(chosen[-1]["seq"] - 1)).lines
    assert after == chosen[-1:]


def test_a_session_is_found_by_the_beginning_or_the_end_of_its_id(stored: Shell):
    name = stored.last()
    for given in (name, name[:12], name[-5:], "last"):
        assert stored.codesdk("events", given, "--type", "task.completed").code == 0
    assert stored.codesdk("events", name[-3:]).code == 2
    missing = stored.codesdk("events", "zzzzzzzz")
    assert (missing.code, missing.out) == (3, "")
    assert missing.err.startswith("error (NOT_FOUND): There is no session zzzzzzzz.")


def test_a_name_that_could_be_two_sessions_is_refused(shell: Shell):
    shell.run(SAY)
    shell.run(SAY)
    both = shell.codesdk("events", "ses_")
    assert both.code == 2
    assert "could be 2 sessions" in both.err


def test_the_transcript_is_shown_and_is_json(stored: Shell):
    shown = stored.codesdk("transcript", "last").out
    for words in ("user\n  Do it\n", "assistant\n", "● workspace.edit  hello.txt", "  Done.\n"):
        assert words in shown
    messages = stored.codesdk("transcript", "last", "--json").lines
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_a_directory_without_data_is_not_found_and_not_made(shell: Shell):
    for args in (
        ["sessions"],
        ["events", "last"],
        ["approve", "last", "call_x"],
        ["artifacts", "--gc"],
        ["verify", "--all"],
    ):
        ran = shell.codesdk(*args, CODESDK_DATA_DIR="elsewhere")
        assert (ran.code, ran.out) == (3, "")
        assert "There is no CodeSDK data in elsewhere" in ran.err
    assert not (shell.home / "elsewhere").exists()


def test_the_data_directory_comes_from_the_option_before_the_environment(stored: Shell):
    data = str(stored.data)
    assert stored.codesdk("--data-dir", data, "sessions", CODESDK_DATA_DIR="elsewhere").code == 0
    assert stored.codesdk("sessions", CODESDK_DATA_DIR=data).code == 0


def test_artifacts_are_listed_and_read(stored: Shell):
    rows = stored.codesdk("artifacts", "last", "--json").lines
    diff = next(row["ref"] for row in rows if row["ref"]["name"] == "hello.txt")
    listed = stored.codesdk("artifacts", "last").out
    assert diff["artifact_id"] in listed
    assert "text/x-diff" in listed
    read = stored.codesdk("artifacts", "last", diff["artifact_id"][-8:])
    assert read.code == 0
    assert read.out.endswith("-Helo, world\n+Hello, world\n")
    saved = stored.home / "out.diff"
    assert stored.codesdk("artifacts", "last", diff["artifact_id"], "-o", str(saved)).out == ""
    assert saved.read_text() == read.out
    assert stored.codesdk("artifacts", "last", diff["artifact_id"], "-o", "no/such/place").code == 2
    assert stored.codesdk("artifacts", "last", "art_nothere").code == 3


@pytest.mark.parametrize(
    "args", [["artifacts"], ["artifacts", "last", "--gc"], ["artifacts", "last", "-o", "x"], ["verify"]]
)
def test_commands_that_make_no_sense_are_bad_usage(stored: Shell, args: list[str]):
    assert stored.codesdk(*args).code == 2


def test_garbage_is_collected_once_it_is_old(shell: Shell):
    shell.run(SAY)
    assert shell.codesdk("artifacts", "--gc").out == "Removed 0 stored files that nothing needs.\n"
    assert shell.codesdk("artifacts", "--gc", "--json").lines == [{"removed": 0}]


def test_bytes_that_are_not_text_are_not_written_to_a_terminal(stored: Shell, tmp_path):
    name = stored.last()
    rows = stored.codesdk("artifacts", name, "--json").lines
    diff = next(row["ref"]["artifact_id"] for row in rows if row["ref"]["name"] == "hello.txt")
    with Terminal(stored, "artifacts", name, diff) as terminal:
        terminal.expect("+Hello, world")
        assert terminal.end() == 0


def damage(shell: Shell, seq: int) -> None:
    """Change one byte of a stored event behind CodeSDK's back."""
    with sqlite3.connect(shell.data / "codesdk.db") as db:
        (frame,) = db.execute("SELECT CAST(frame AS BLOB) FROM events WHERE seq = ?", (seq,)).fetchone()
        changed = frame.replace(b"Hi.", b"Ho.")
        assert changed != frame
        db.execute("UPDATE events SET frame = ? WHERE seq = ?", (changed, seq))
    db.close()


def test_damage_is_named_by_every_command_that_meets_it(shell: Shell):
    events = shell.run(SAY).lines
    assert (shell.codesdk("verify", "last").code, shell.codesdk("replay", "last").code) == (0, 0)
    seq = next(event["seq"] for event in events if event["type"] == "model.output.completed")
    damage(shell, seq)

    shown = shell.codesdk("events", "last", "--json")
    assert shown.code == 5
    assert [event["seq"] for event in shown.lines] == [e["seq"] for e in events if e["seq"] != seq]
    assert shown.err.startswith(f"event {seq} is damaged: ")
    assert shell.codesdk("events", "last").code == 5

    verified = shell.codesdk("verify", "--all")
    assert verified.code == 1
    assert f"\n  seq {seq}: store: the stored frame is damaged" in verified.out
    (as_json,) = shell.codesdk("verify", "last", "--json").lines
    assert (as_json["ok"], as_json["findings"][0]["seq"]) == (False, seq)
    replayed = shell.codesdk("replay", "last")
    assert replayed.code == 1
    assert f"\n  seq {seq}: " in replayed.out
    (as_json,) = shell.codesdk("replay", "last", "--json").lines
    assert (as_json["ok"], as_json["differences"][0]["seq"]) == (False, seq)


def test_a_broken_invariant_is_named(shell: Shell):
    shell.run(SAY)
    with sqlite3.connect(shell.data / "codesdk.db") as db:
        db.execute("DELETE FROM events WHERE seq = 4")
    db.close()
    verified = shell.codesdk("verify", "last")
    assert verified.code == 1
    assert "\n  seq 5: invariant 2: " in verified.out


def test_a_sound_log_is_said_to_be_sound(stored: Shell):
    count = len(stored.codesdk("events", "last", "--json").lines)
    name = stored.last()
    assert stored.codesdk("verify", "last").out == f"✓ {name}: {count} events, all nine invariants hold\n"
    assert stored.codesdk("replay", "last").out == f"✓ {name}: {count} events, replayed bit for bit\n"
    (verified,) = stored.codesdk("verify", "--all", "--json").lines
    assert verified == {
        "session_id": name,
        "ok": True,
        "events": count,
        "interrupted": False,
        "findings": [],
    }


def test_a_file_that_is_no_database_is_a_storage_error(shell: Shell):
    shell.data.mkdir()
    (shell.data / "codesdk.db").write_bytes(b"not a database " * 1000)
    ran = shell.codesdk("sessions", "--json")
    assert (ran.code, ran.error["code"]) == (5, "STORAGE_FAILED")


def test_a_long_log_is_read_to_its_end(shell: Shell):
    shell.run("turns: [{steps: [{burst: {count: 1500, size: 4}}]}]")
    with Live(shell, "events", "last", "--json") as live:
        live.end()
    assert [event["seq"] for event in live.seen] == list(range(1, len(live.seen) + 1))
    assert len(live.seen) > 1500
    assert json.loads(shell.codesdk("verify", "last", "--json").out)["events"] == len(live.seen)
