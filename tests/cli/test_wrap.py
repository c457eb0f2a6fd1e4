"""`codesdk wrap` as a person has it: at a terminal, without one, beside others, with programs good and bad."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.channel import programs
from tests.channel.requirements import shows
from tests.channel.test_programs import gone
from tests.cli.conftest import EDIT
from tests.cli.shell import MODULE, Live, Shell, Terminal, environment
from tests.counts import COUNTS
from tests.daemon.rig import daemon

PROMPT = "show > "
POLICY = """
[[rules]]
id = "reads"
result = "allow"
tool = "ok.*"

[[rules]]
id = "no-shell"
result = "deny"
tool = "shell"
reason = "No shells here."
"""
KEY = "sk-ant-api03-" + "b" * 40


def command(name: str, *more: str) -> list[str]:
    return ["--", sys.executable, "-S", programs.__file__, name, "ran", *more]


def executed(shell: Shell) -> list[str]:
    file = shell.home / "ran"
    return file.read_text().splitlines() if file.exists() else []


def events(shell: Shell, session: str = "last") -> list[dict]:
    return shell.codesdk("events", session, "--json").lines


def kinds(shell: Shell) -> list[str]:
    return [event["type"] for event in events(shell)]


@shows("5.3-audited", "1.2-unattended", "7-unattended")
def test_a_wrapped_program_is_a_session_like_any_other(shell: Shell):
    (shell.home / "policy.toml").write_text(POLICY)
    ran = shell.spawn("wrap", "--policy", "policy.toml", *command("good"))
    assert (ran.code, ran.out, ran.err) == (7, "before\nafter\n", "a word on stderr\n")
    assert executed(shell) == ["ok.read"]
    seen = events(shell)
    assert seen[0]["payload"]["runtime"] == "wrapped"
    decided = [(e["type"], e["payload"]["name"]) for e in seen if e["type"].endswith(("approved", "denied"))]
    assert decided == [("tool.call.approved", "ok.read"), ("tool.call.denied", "shell")]
    assert next(e["payload"]["reason"] for e in seen if e["type"] == "tool.call.denied") == "No shells here."
    assert seen[-1]["type"] == "task.failed"  # the program ended with 7
    for check in ("verify", "replay"):
        assert shell.codesdk(check, "last").code == 0
    session = seen[0]["trace"]["session_id"]
    audited = shell.codesdk("audit", "--json").lines
    assert {record["what"]["session_id"] for record in audited} == {session}
    assert [(r["action"], r["outcome"], r["what"].get("tool")) for r in audited] == [
        ("session.create", "ok", None),
        ("task.start", "ok", None),
        ("tool.decision", "allowed", "ok.read"),
        ("tool.start", "started", "ok.read"),
        ("tool.end", "ok", "ok.read"),
        ("tool.decision", "denied", "shell"),
        ("task.fail", "failed", None),
    ]
    denied = next(record for record in audited if record["outcome"] == "denied")
    assert (denied["who"]["kind"], denied["why"]["reason"]) == ("policy", "No shells here.")
    assert denied["why"]["sources"][-1]["rule"] == "no-shell"
    bundle = shell.codesdk("bundle", "last", "--output", "b.tgz")
    assert bundle.code == 0, bundle.err
    with tarfile.open(shell.home / "b.tgz") as packed:
        files = {name.partition("/")[2]: packed.extractfile(name) for name in packed.getnames()}
        held = {name: file.read() for name, file in files.items() if file is not None}
    assert [json.loads(line) for line in held["events/00000001.jsonl"].splitlines()] == seen
    records = [json.loads(line) for line in held["audit.jsonl"].splitlines()]
    assert [record["n"] for record in records] == [record["n"] for record in audited]
    calls = [json.loads(held[name]) for name in sorted(held) if name.startswith("tools/")]
    assert [(call["name"], call.get("is_error")) for call in calls] == [("ok.read", False), ("shell", None)]
    assert [len(calls[0]["approved"]), calls[1]["denied"][0]["reason"]] == [1, "No shells here."]
    assert json.loads(held["verify.json"])["ok"] is True


def test_without_a_terminal_what_has_to_be_asked_is_denied(shell: Shell):
    ran = shell.spawn("wrap", *command("good"))
    assert (ran.code, executed(shell)) == (7, [])
    assert kinds(shell).count("tool.call.denied") == 2


def test_the_mode_auto_lets_a_program_read(shell: Shell):
    count = COUNTS.channel_requests
    ran = shell.spawn("wrap", "--mode", "auto", *command("many", str(count)))
    assert (ran.code, ran.out) == (0, f"allowed {count}\n")
    assert kinds(shell).count("tool.call.completed") == count
    assert shell.codesdk("verify", "last").code == 0


def test_the_mode_audit_stops_nothing_and_records_what_would_have_been_said(shell: Shell):
    ran = shell.spawn("wrap", "--mode", "audit", *command("good"))
    assert (ran.code, executed(shell)) == (7, ["ok.read", "shell"])
    said = [e["payload"]["reason"] for e in events(shell) if e["type"] == "tool.call.policy_evaluated"]
    assert len(said) == 2
    assert all("CodeSDK would have said ask" in reason for reason in said)
    assert shell.codesdk("verify", "last").code == 0


def test_the_mode_yolo_has_to_be_allowed(shell: Shell):
    assert shell.spawn("wrap", "--mode", "yolo", *command("good")).code == 11
    assert executed(shell) == []
    assert shell.spawn("wrap", "--mode", "yolo", "--allow-yolo", *command("good")).code == 7
    assert executed(shell) == ["ok.read", "shell"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["wrap"], 10, "Missing argument"),
        (["wrap", "--no-such-option", "--", "true"], 10, "--no-such-option"),
        (["wrap", "--mode", "never", "--", "true"], 10, "never"),
        (["wrap", "--decision-timeout", "-1", "--", "true"], 10, "-1"),
        (["wrap", "--url", "http://127.0.0.1:1", "--", "true"], 11, "data directory"),
        (["wrap", "--mode", "audit", "--require-control", "--", "true"], 10, "--require-control"),
        (["wrap", "--policy", "nothing.toml", "--", "true"], 11, "nothing.toml"),
        (["wrap", "--policy", "bad.toml", "--", "true"], 11, "bad.toml"),
        (["wrap", "--workspace", "nowhere", "--", "true"], 11, "nowhere"),
        (["wrap", "--", "no-such-program"], 20, "no-such-program"),
        (["wrap", "--", "./ws"], 20, "./ws"),
        (["--data-dir", "bad.toml", "wrap", "--", "true"], 20, ""),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_with_its_own_code(
    shell: Shell, args: list[str], code: int, words: str
):
    (shell.home / "bad.toml").write_text("[[rules]]\nid = 1\n")
    ran = shell.spawn(*args)
    assert (ran.code, ran.out) == (code, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("error (")
    assert words in line


def test_a_program_that_is_no_producer_passes_through(shell: Shell):
    ran = shell.spawn("wrap", "--", "sh", "-c", "printf 'no end'; echo err >&2; exit 3")
    assert (ran.code, ran.out, ran.err) == (3, "no end", "err\n")
    assert [kind for kind in kinds(shell) if kind.startswith("tool.")] == []


def test_options_of_the_program_are_its_own(shell: Shell):
    assert shell.spawn("wrap", "echo", "--mode", "x", "--help").out == "--mode x --help\n"


def test_a_program_that_does_not_wait_is_reported_and_can_be_refused(shell: Shell):
    watched = shell.spawn("wrap", *command("does_not_wait"))
    assert (watched.code, watched.err) == (
        0,
        "codesdk wrap: audit only: it does not wait for a decision on tell (exec)\n",
    )
    seen = events(shell)
    assert "tool.call.completed" in [e["type"] for e in seen]
    assert [e["payload"]["kind"] for e in seen if e["type"] == "runtime.notice"] == ["violation"]
    refused = shell.spawn("wrap", "--require-control", "--grace", "0.2", *command("stays_without_waiting"))
    assert refused.code == 40
    assert "control is required" in refused.err


def test_an_abort_says_where_its_explanation_is(shell: Shell):
    ran = shell.spawn("wrap", "--grace", "0.2", *command("ignores_denial"))
    assert ran.code == 40
    first, second = ran.err.splitlines()
    assert first == "codesdk wrap: the program is ended: it ran shell although that was denied"
    path = Path(second.removeprefix("codesdk wrap: what explains it is in "))
    assert path.parent == (shell.data / "diagnostics").resolve()
    assert json.loads(path.read_text())["abort"]["code"] == "policy_violation"
    assert events(shell)[-1]["type"] == "task.failed"
    assert shell.codesdk("verify", "last").code == 0


@shows("7-stderr", "7-prompt", "7-terminal")
def test_a_person_is_asked_at_the_terminal_and_the_output_stays_clean(shell: Shell):
    with Terminal(shell, "wrap", *command("good"), stdout=shell.home / "out.txt") as terminal:
        terminal.expect("ok.read")
        terminal.expect("exec")
        terminal.expect(PROMPT)
        terminal.type("y\n")
        terminal.expect("shell")
        terminal.expect(PROMPT)
        terminal.type("n not this one\n")
        assert terminal.end() == 7
    assert (shell.home / "out.txt").read_text() == "before\nafter\n"
    assert executed(shell) == ["ok.read"]
    denied = next(e for e in events(shell) if e["type"] == "tool.call.denied")
    assert (denied["payload"]["reason"], denied["payload"]["by"]["kind"]) == ("not this one", "user")


@shows("7-default")
def test_an_empty_line_is_a_no_and_secrets_are_not_shown(shell: Shell):
    ask = (
        "import json,sys; print(json.dumps({'v':1,'type':'tool.request','ts':1,'id':'a','tool':'http.get',"
        f"'action':'net','args':{{'key':'{KEY}','own':'plain-word-1'}},'rationale':'to look it up','requires_policy':True}}),flush=True);"
        "[print(json.loads(l)['decision'], flush=True) or sys.exit() for l in sys.stdin if 'decision\"' in l.replace(' ','')"
        " and json.loads(l)['type']=='policy.decision']"
    )
    (shell.home / "ask.py").write_text(ask)
    with Terminal(shell, "wrap", "--", sys.executable, "ask.py", SITE_PASSWORD="plain-word-1") as terminal:
        terminal.expect("http.get")
        terminal.expect("net · to look it up")
        terminal.expect(PROMPT)
        terminal.type("\n")
        terminal.expect("deny")
        assert terminal.end() == 0
    for secret in ("sk-ant", "plain-word-1"):
        assert secret not in terminal.plain
        assert secret not in shell.codesdk("events", "last", "--json").out


def test_a_question_can_be_answered_from_another_terminal(shell: Shell):
    with Live(shell, "wrap", "--interactive", *command("waits")) as live:
        call = wait_for_question(shell)
        assert shell.codesdk("approve", "last", call).code == 0
        assert live.process.wait(60) == 0
    assert executed(shell) == ["wait"]


def sessions(shell: Shell) -> list[dict]:
    """Return all sessions, as far as there are any yet."""
    listed = shell.codesdk("sessions", "--json")
    return listed.lines if listed.code == 0 else []


def wait_for_question(shell: Shell) -> str:
    """Return the call that waits, once one does."""
    follow = [*MODULE, "events", "last", "--follow", "--json", "--type", "approval.requested"]
    while not any(row["runtime"] == "wrapped" for row in sessions(shell)):
        os.sched_yield()
    with subprocess.Popen(
        follow, cwd=shell.home, env=environment({}), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        process.terminate()
    return found["payload"]["tool_call_id"]


def test_it_works_through_the_process_that_holds_the_directory(shell: Shell):
    script = shell.write_script(EDIT)
    options = ["--runtime=scripted", "--script", script, "--workspace", "ws", "--permission-mode", "auto"]
    with Live(shell, "run", "x", *options, "--interactive", "--json") as holder:
        holder.until("approval.requested")
        held = holder.seen[0]["trace"]["session_id"]
        ran = shell.spawn("wrap", "--mode", "auto", *command("many", "20"))
        assert (ran.code, ran.out, ran.err) == (0, "allowed 20\n", "")
        assert shell.spawn("wrap", "--policy", "edits", *command("good")).code == 11
        sessions = shell.codesdk("sessions", "--json").lines
        assert [row["runtime"] for row in sessions] == ["wrapped", "scripted"]
        assert sessions[1]["session_id"] == held
        assert kinds(shell).count("tool.call.completed") == 20
    assert shell.codesdk("verify", "last").code == 0


def test_it_works_through_a_daemon_and_can_be_answered_there(shell: Shell):
    with daemon(shell.data):
        with Live(shell, "wrap", "--interactive", *command("waits")) as live:
            call = wait_for_question(shell)
            assert shell.codesdk("deny", "last", call, "--reason", "not here").code == 0
            assert live.process.wait(60) == 0
        assert executed(shell) == []
        denied = next(e for e in events(shell) if e["type"] == "tool.call.denied")
        assert denied["payload"]["reason"] == "not here"


def test_a_holder_that_dies_takes_the_program_with_it(shell: Shell):
    script = shell.write_script(EDIT)
    options = ["--runtime=scripted", "--script", script, "--workspace", "ws", "--permission-mode", "auto"]
    with Live(shell, "run", "x", *options, "--interactive", "--json") as holder:
        holder.until("approval.requested")
        with Live(shell, "wrap", "--interactive", "--grace", "0.2", *command("waits")) as live:
            wait_for_question(shell)
            holder.process.kill()
            assert live.process.wait(60) in (40, 50)
    assert executed(shell) == []


def test_ctrl_c_goes_to_the_program_first(shell: Shell):
    (shell.home / "ran").touch()
    with Live(shell, "wrap", *command("interrupted")) as live:
        while "ready" not in executed(shell):
            os.sched_yield()
        live.process.send_signal(signal.SIGINT)
        assert live.process.wait(60) == 42


def test_sigterm_ends_the_program(shell: Shell):
    with Live(shell, "wrap", "--grace", "0.2", *command("interrupted")) as live:
        while "ready" not in executed(shell):
            os.sched_yield()
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(60) == 130


def test_a_wrap_that_is_killed_leaves_a_log_that_holds_and_a_program_that_ran_nothing(shell: Shell):
    with Live(shell, "wrap", "--interactive", *command("waits")) as live:
        wait_for_question(shell)
        children = Path(f"/proc/{live.process.pid}/task/{live.process.pid}/children").read_text().split()
        live.process.kill()
        live.process.wait()
        for child in children:
            gone(int(child))
    assert executed(shell) == []
    resumed = shell.spawn("resume", "last")
    assert resumed.code != 0
    assert "cannot be resumed" in resumed.err + resumed.out
    assert shell.codesdk("verify", "last").code == 0


def test_a_wrapped_session_cannot_be_steered_or_moved(shell: Shell):
    with Live(shell, "wrap", "--interactive", *command("waits")) as live:
        call = wait_for_question(shell)
        assert shell.codesdk("steer", "last", "do something else").code != 0
        assert shell.codesdk("deny", "last", call, "--reason", "no").code == 0
        live.process.wait(60)
    assert shell.codesdk("move", "last", "scripted").code != 0
    assert shell.codesdk("run", "x", "--runtime", "wrapped").code != 0


WRITES = """
turns:
  - steps: [{text: Looking.}, {call: {tool: workspace.edit, input: {path: hello.txt, old: Helo, new: Hello}}}]
  - steps: [{text: Done.}]
"""


@pytest.mark.parametrize("asks", [["run", "Fix it"], ["chat", "-p", "Fix it"]], ids=["run", "chat"])
@pytest.mark.parametrize(("rule", "text"), [("allow", "Hello, world\n"), ("deny", "Helo, world\n")])
def test_both_halves_meet(shell: Shell, rule: str, text: str, asks: list[str]):
    """A session of minicode asks over the channel, and another CodeSDK decides."""
    script = shell.write_script(WRITES)
    (shell.home / "p.toml").write_text(
        f'[[rules]]\nid = "edits"\nresult = "{rule}"\nreason = "by rule"\npath = "**"\n'
    )
    inner = ["--data-dir", "inner", *asks, "--policy-stdio", "--workspace", "ws", "--script", script]
    ran = shell.spawn("wrap", "--policy", "p.toml", "--", *MODULE, *inner)
    assert (ran.code, ran.out) == (0, "Looking.\nDone.\n"), ran.err
    assert (shell.workspace / "hello.txt").read_text() == text
    outer = [e for e in events(shell) if e["type"].endswith(("approved", "denied"))]
    assert [(e["type"].rpartition(".")[2], e["payload"]["name"]) for e in outer] == [
        ("approved" if rule == "allow" else "denied", "workspace.edit")
    ]
    (mine,) = [
        e
        for e in shell.codesdk("--data-dir", "inner", "events", "last", "--json").lines
        if "answered" in e["type"]
    ]
    assert mine["payload"]["decision"] == ("approve" if rule == "allow" else "deny")
    for place in (".codesdk", "inner"):
        assert shell.codesdk("--data-dir", place, "verify", "last").code == 0


@pytest.mark.parametrize("asks", [["run", "Fix it"], ["chat", "-p", "Fix it"]], ids=["run", "chat"])
def test_a_producer_without_an_arbiter_denies_and_ends(shell: Shell, asks: list[str]):
    script = shell.write_script(WRITES)
    ran = shell.spawn(*asks, "--policy-stdio", "--workspace", "ws", "--script", script, stdin="")
    assert ran.code == 130
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


@pytest.mark.parametrize(
    "args",
    [
        ["run", "-", "--policy-stdio"],
        ["run", "x", "--policy-stdio", "--json"],
        ["chat", "-p", "-", "--policy-stdio"],
        ["chat", "-p", "x", "--policy-stdio", "--json"],
        ["chat", "--policy-stdio"],
    ],
)
def test_stdin_and_stdout_are_for_decisions_alone(shell: Shell, args: list[str]):
    ran = shell.spawn(*args)
    assert ran.code == 2
    assert "--policy-stdio" in ran.err


ECHO = """
import json, sys
print('@@MEM_TOOL_EVENT@@ ' + json.dumps({"v": 1, "type": "tool.request", "ts": 1, "id": "t-1", "tool": sys.argv[1],
    "action": sys.argv[2], "args": {}, "requires_policy": True}), flush=True)
for line in sys.stdin:
    told = json.loads(line)
    if told["type"] == "policy.decision":
        print(told["decision"], told.get("rule_id"), told.get("constraints"))
        break
"""


@shows("3.2-rule")
@pytest.mark.parametrize(
    ("mode", "call", "words"),
    [
        ("ask", ["ok.read", "read"], "allow reads None"),
        ("ask", ["shell", "exec"], "deny no-shell None"),
        ("auto", ["other", "read"], "allow mode:auto:read_only None"),
    ],
)
def test_a_decision_names_the_rule_that_made_it(shell: Shell, mode: str, call: list[str], words: str):
    (shell.home / "policy.toml").write_text(POLICY)
    ran = shell.spawn(
        "wrap", "--mode", mode, "--policy", "policy.toml", "--", sys.executable, "-c", ECHO, *call
    )
    assert (ran.code, ran.out) == (0, f"{words}\n"), ran.err


def test_an_answer_of_a_person_has_no_rule(shell: Shell):
    argv = ("wrap", "--interactive", "--", sys.executable, "-c", ECHO, "other", "read")
    with Live(shell, *argv) as live:
        assert shell.codesdk("approve", "last", wait_for_question(shell)).code == 0
        assert live.process.wait(60) == 0
        assert live.process.stdout is not None
        assert live.process.stdout.read() == "allow None None\n"
