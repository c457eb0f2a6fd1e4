"""`codesdk audit`: all of it or one session's, by kind, followed, and checked."""

import json
import signal

from tests.cli.shell import Live, Shell

from codesdk.store.audit.chain import segments

ACTIONS = [
    ("request", "session.create"),
    ("request", "task.start"),
    ("request", "tool.decision"),
    ("tool", "tool.start"),
    ("tool", "tool.end"),
    ("request", "tool.decision"),
    ("tool", "tool.start"),
    ("tool", "tool.end"),
]


def told(lines: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(line["category"], line["action"]) for line in lines]


def test_the_records_of_a_session_say_who_let_what_happen(stored: Shell):
    shown = stored.codesdk("audit", "last", "--json")
    assert (shown.code, told(shown.lines)) == (0, ACTIONS)
    assert stored.codesdk("audit", "--json").lines == shown.lines
    tools = stored.codesdk("audit", "--category", "tool", "--json").lines
    assert told(tools) == [each for each in ACTIONS if each[0] == "tool"]
    assert [line["n"] for line in stored.codesdk("audit", "--limit", "3", "--json").lines] == [6, 7, 8]
    assert [line["n"] for line in stored.codesdk("audit", "--after", "6", "--json").lines] == [7, 8]


def test_people_read_one_line_a_record(stored: Shell):
    shown = stored.codesdk("audit")
    lines = shown.out.splitlines()
    session = stored.last()[-8:]
    assert (shown.code, len(lines)) == (0, 8)
    assert lines[2].split()[3:] == [
        *("request", "tool.decision", "allowed", "by", "policy:", "workspace.read", session, "·", "mode:yolo")
    ]
    assert f"by engine: workspace.read codesdk_host no network {session}" in lines[3]


def test_a_whole_chain_is_called_so_and_its_end_can_be_asked_for_later(stored: Shell):
    good = stored.codesdk("audit", "--verify")
    first, end = good.out.splitlines()
    assert (good.code, first) == (0, "✓ audit: 8 records, the chain is whole, signed up to 8")
    known = end.removeprefix("  end ")
    assert stored.codesdk("audit", "--verify", "--known", known).code == 0
    other = stored.codesdk("audit", "--verify", "--known", "9:" + known.partition(":")[2])
    assert (other.code, other.out.splitlines()[1]) == (1, "  missing: record 9 is missing at the end")
    report = stored.codesdk("audit", "--verify", "--json").lines[0]
    assert (report["ok"], report["records"], f"{report['end']['n']}:{report['end']['hash']}") == (
        True,
        8,
        known,
    )


def test_a_changed_record_is_named_and_the_check_fails(shell: Shell):
    assert shell.run("turns: [{steps: [{text: Hi.}]}]").code == 0
    [segment] = segments(shell.data / "audit")
    lines = segment.path.read_bytes().splitlines(keepends=True)
    segment.path.write_bytes(lines[0].replace(b'"yolo"', b'"ask"') + lines[1])
    bad = shell.codesdk("audit", "--verify")
    assert (bad.code, bad.out) == (
        1,
        "✗ audit: 1 problem in 2 records\n"
        "  changed: record 1 is not as it was written (audit-000000000001.jsonl)\n",
    )
    report = shell.codesdk("audit", "--verify", "--json")
    assert (report.code, report.lines[0]["ok"], report.lines[0]["findings"][0]["kind"]) == (
        1,
        False,
        "changed",
    )


def test_what_an_earlier_process_left_unfinished_is_recorded_as_a_crash(shell: Shell):
    script = shell.write_script("turns: [{steps: [{stall: closed}]}]")
    options = ("--runtime=scripted", "--script", script, "--workspace", "ws", "--json")
    with Live(shell, "run", "Wait", *options) as live:
        live.until("task.started")
        live.signal(signal.SIGKILL)
        live.end()
    assert shell.run("turns: [{steps: [{text: Hi.}]}]").code == 0
    crashed = shell.codesdk("audit", "--category", "runtime", "--json").lines
    assert [(line["action"], line["outcome"]) for line in crashed] == [
        ("engine.crash", "recovered"),
        ("task.fail", "failed"),
    ]
    assert crashed[1]["what"]["code"] == "INTERRUPTED"
    assert shell.codesdk("audit", "--verify").code == 0


def test_new_records_are_followed(shell: Shell):
    assert shell.run("turns: [{steps: [{text: Hi.}]}]").code == 0
    with Live(shell, "audit", "--follow", "--json") as live:
        stdout = live.process.stdout
        assert stdout is not None
        assert [json.loads(stdout.readline())["n"] for _ in range(2)] == [1, 2]
        assert shell.run("turns: [{steps: [{text: Hi.}]}]").code == 0
        assert [json.loads(stdout.readline())["action"] for _ in range(2)] == ["session.create", "task.start"]


def test_a_deleted_session_is_still_in_the_audit_under_its_full_id(stored: Shell):
    assert stored.codesdk("audit", "ses_gone").out == "No audit records.\n"
    assert stored.codesdk("audit", "nosuchsession").code == 3


def test_what_does_not_go_together_is_refused(stored: Shell, shell: Shell):
    assert stored.codesdk("audit", "last", "--verify").code == 2
    assert stored.codesdk("audit", "--known", "1:sha256:00").code == 2
    assert stored.codesdk("audit", "--verify", "--known", "eight").code == 2
    assert shell.codesdk("audit").code == 3
    assert shell.codesdk("audit", "--verify").code == 3
