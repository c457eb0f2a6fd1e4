import asyncio
import json
import signal
import subprocess

import pytest
from tests.cli.conftest import EDIT
from tests.cli.shell import MODULE, Live, Shell, environment

from codesdk import CodeSDK
from codesdk.contract.codec import decode, encode
from codesdk.contract.events import TERMINAL_TYPES

SAY = "turns: [{steps: [{text: Hi.}]}]"
STALL = "turns: [{steps: [{text: Working.}, {stall: stopped}]}]"
DEAF = "turns: [{steps: [{text: Working.}, {stall: closed}]}]"
TALK = "turns: [{steps: [{burst: {count: 20000, size: 50}}]}]"


def types(events: list[dict]) -> list[str]:
    return [event["type"] for event in events]


def test_json_is_the_stored_events_from_the_first_to_the_terminal_one(stored: Shell):
    lines = stored.codesdk("events", "last", "--json").out.splitlines()
    events = [decode(line.encode()) for line in lines]
    assert [encode(event).decode() for event in events] == lines
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events[:2]] == ["session.created", "task.started"]
    assert [e.type for e in events if e.type in TERMINAL_TYPES] == [events[-1].type] == ["task.completed"]


def test_run_prints_exactly_what_it_stores(shell: Shell):
    ran = shell.run(SAY)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == shell.codesdk("events", "last", "--json").out


def test_people_see_text_calls_diffs_and_the_ending_without_escapes_in_a_pipe(shell: Shell):
    script = shell.write_script(EDIT)
    options = (
        "--runtime=scripted",
        "--script",
        script,
        "--workspace",
        "ws",
        "--permission-mode",
        "yolo",
        "--allow-yolo",
    )
    ran = shell.codesdk("run", "Fix it", *options)
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert "\r" not in ran.out
    for words in (
        "I should look first.",
        "Let me read it.",
        "● workspace.edit  hello.txt",
        "  -Helo, world\n  +Hello, world\n",
        "✓ completed · 270 tokens in, 40 out · $0.0012 · ",
        f"session {shell.last()}",
    ):
        assert words in ran.out
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


@pytest.mark.slow
def test_a_script_without_a_runtime_is_the_model_of_minicode(shell: Shell):
    script = shell.write_script(SAY)
    ran = shell.codesdk("run", "x", "--script", script, "--workspace", "ws", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0]["payload"]["runtime"] == "minicode"
    assert types(ran.lines)[-1] == "task.completed"
    captures = [line["payload"]["capture"] for line in ran.lines if line["type"] == "model.input"]
    assert captures[-1] == "exact", "the gateway saw the request"


def test_without_a_runtime_a_key_or_a_script_the_error_says_what_to_do(shell: Shell):
    ran = shell.here("run", "x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "error (INVALID_REQUEST): No runtime is named, and minicode, which would be used, has no"
    )
    assert "Set ANTHROPIC_API_KEY or OPENAI_API_KEY or GEMINI_API_KEY" in ran.err
    ready = [
        runtime["name"] for runtime in shell.here("runtimes", "list", "--json").lines if runtime["ready"]
    ]
    assert ran.err.endswith(f" Or name a runtime that is ready: {', '.join(ready)}.\n")
    assert shell.codesdk("sessions", "--json").lines == []


def test_what_a_model_says_cannot_steer_the_terminal(shell: Shell):
    script = shell.write_script('turns: [{steps: [{text: "a\\e]0;title\\a\\e[2Jb\\u009bc\\u202ed"}]}]')
    ran = shell.codesdk("run", "x", "--runtime=scripted", "--script", script)
    assert "a␛]0;title␇␛[2Jb\ufffdc\ufffdd" in ran.out
    assert not set(ran.out) & set("\x1b\x07\x9b\u202e")


def test_a_dash_reads_the_prompt_from_stdin(shell: Shell):
    script = shell.write_script("turns: [{expect: {user_contains: from stdin}, steps: [{text: ok}]}]")
    assert (
        shell.codesdk(
            "run", "-", "--runtime=scripted", "--script", script, "--json", stdin="comes from stdin\n"
        ).code
        == 0
    )
    assert (
        shell.codesdk("run", "-", "--runtime=scripted", "--script", script, "--json", stdin=" \n").code == 2
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["run", "x", "--runtime=scripted", "--script", "bad.yaml"],
            "bad.yaml:2: turns[0].steps[0].txt: unknown step",
        ),
        (
            ["run", "x", "--runtime=scripted", "--script", "none.yaml"],
            "none.yaml: there is no script file here",
        ),
        (["run", "x", "--runtime=scripted", "--script", "gateway.yaml"], "belong to a model endpoint"),
        (["run", "x", "--runtime", "scripted"], "--script FILE"),
        (["run", "x", "--runtime", "scriptd"], 'Did you mean "scripted"?'),
        (["run", "x", "--runtime", "zebra"], 'There is no runtime "zebra"'),
        (
            ["run", "x", "--runtime=scripted", "--script", "ok.yaml", "--workspace", "nowhere"],
            "nowhere is not a directory",
        ),
        (["run", " ", "--runtime=scripted", "--script", "ok.yaml"], "The prompt is empty"),
        (["run", "\udcff", "--runtime=scripted", "--script", "ok.yaml"], "The prompt is not UTF-8 text"),
        (["run", "x", "--permission-mode", "no"], "--permission-mode"),
        (["run"], "Missing argument 'PROMPT'"),
        (["run", "x", "--session", "last", "--title", "t"], "--title is for a new session"),
        (["run", "x", "--session", "last", "--on-interrupt", "wait"], "--on-interrupt is for a new session"),
        (["run", "x", "--on-interrupt", "stop"], "--on-interrupt"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(shell: Shell, args: list[str], words: str):
    shell.write_script("turns:\n  - steps: [{txt: a}]\n", "bad.yaml")
    shell.write_script("turns: [{steps: [{reset: true}]}]", "gateway.yaml")
    shell.write_script(SAY, "ok.yaml")
    ran = shell.here(*args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error (INVALID_REQUEST): ")
    assert words in ran.err
    assert ran.err.count("\n") == 1
    assert not shell.data.exists()


@pytest.mark.parametrize(
    "args", [["run", "--json"], ["run", "x", "--json", "--runtime=scripted", "--script", "none.yaml"]]
)
def test_errors_before_the_first_event_are_json_on_stderr_too(shell: Shell, args: list[str]):
    ran = shell.here(*args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error["code"] == "INVALID_REQUEST"
    assert ran.error["retryable"] is False


def test_a_failed_task_exits_1_and_says_why(shell: Shell):
    script = shell.write_script("turns: [{steps: [{fail: {code: MODEL_ERROR, message: No such luck.}}]}]")
    ran = shell.codesdk("run", "x", "--runtime=scripted", "--script", script)
    assert ran.code == 1
    assert "✗ failed · MODEL_ERROR: No such luck." in ran.out
    as_json = shell.codesdk("run", "x", "--runtime=scripted", "--script", script, "--json")
    assert (as_json.code, as_json.err, as_json.lines[-1]["type"]) == (1, "", "task.failed")


def test_without_a_terminal_a_question_is_a_denial_at_once(shell: Shell):
    ran = shell.run(EDIT, mode="ask")
    assert ran.code == 0
    assert "approval.requested" not in types(ran.lines)
    assert types(ran.lines).count("tool.call.denied") == 2
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_a_session_goes_on_with_its_next_task(shell: Shell):
    first = shell.run("turns: [{steps: [{text: one}]}, {steps: [{text: two}]}]").lines
    name = first[0]["trace"]["session_id"]
    more = ("--session", name[-6:], "--script", "script.yaml", "--allow-yolo", "--json")
    again = shell.codesdk("run", "More", *more)
    assert again.code == 0
    assert types(again.lines)[0] == "task.started"
    assert again.lines[0]["seq"] == first[-1]["seq"] + 1
    assert again.lines[-1]["payload"]["text"] == "two"


@pytest.mark.parametrize(("given", "chosen"), [([], "wait"), (["--on-interrupt", "resume"], "resume")])
def test_a_new_session_can_say_that_it_goes_on_by_itself(shell: Shell, given: list[str], chosen: str):
    ran = shell.run(SAY, *given)
    assert ran.lines[0]["payload"]["settings"]["on_interrupt"] == chosen


@pytest.mark.parametrize(
    ("given", "level", "namespace"),
    [
        ([], "namespaced", "local"),
        (["--isolation", "ephemeral", "--namespace", "team"], "ephemeral", "team"),
        (["--isolation", "shared"], "shared", "local"),
    ],
)
def test_a_new_session_can_say_where_its_runtimes_state_lives(
    shell: Shell, given: list[str], level: str, namespace: str
):
    created = shell.run(SAY, *given).lines[0]
    assert created["type"] == "session.created"
    assert created["payload"]["isolation"]["level"] == level
    assert created["payload"]["credential_namespace"] == namespace


@pytest.mark.parametrize("command", [["run", "Go on", "--session"], ["resume"]])
def test_a_session_that_asks_its_provider_is_not_given_a_script(shell: Shell, command: list[str]):
    async def create() -> str:
        async with CodeSDK.open(shell.data, providers={}) as sdk:
            return (await sdk.create_session(runtime="minicode", workspace=shell.workspace)).id

    session = asyncio.run(create())
    refused = shell.codesdk(*command, session, "--script", shell.write_script(SAY))
    assert (refused.code, refused.out) == (2, "")
    assert f"Session {session} asks its provider's model, so a script that it is given" in refused.err


def test_an_interactive_session_that_goes_on_without_a_terminal_gets_denials(shell: Shell):
    edit = "{steps: [{call: {tool: workspace.edit, input: {path: hello.txt, old: Helo, new: Hello}}}]}"
    script = shell.write_script(f"turns: [{edit}, {edit}, {{steps: [{{text: Done.}}]}}]")
    options = [
        "--runtime=scripted",
        "--script",
        script,
        "--workspace",
        "ws",
        "--permission-mode",
        "auto",
        "--json",
    ]
    with Live(shell, "run", "x", *options, "--interactive") as live:
        session = live.until("approval.requested")["trace"]["session_id"]
        live.signal(signal.SIGTERM)
        assert live.end().code == 130
    again = shell.codesdk("run", "y", "--session", session, "--script", script, "--json")
    assert again.code == 0
    denied = [event["payload"] for event in again.lines if event["type"] == "tool.call.denied"]
    assert "Nobody can be asked" in denied[0]["reason"]


def test_a_second_run_works_through_the_process_that_has_the_directory(shell: Shell):
    stalling = shell.write_script(STALL)
    with Live(shell, "run", "x", "--runtime=scripted", "--script", stalling, "--json") as live:
        first = live.until("model.output.delta")["trace"]["session_id"]
        hello = shell.write_script(SAY, "hello.yaml")
        second = shell.codesdk("run", "y", "--runtime=scripted", "--script", hello, "--json")
        assert (second.code, second.lines[-1]["type"]) == (0, "task.completed")
        assert second.lines[0]["trace"]["session_id"] != first
        refused = shell.codesdk("run", "y", "--runtime=scripted", "--script", hello, "--allow-yolo")
        assert (refused.code, refused.out) == (2, "")
        assert "--allow-yolo would have no effect here" in refused.err


def test_what_must_have_the_directory_alone_is_told_who_has_it(shell: Shell):
    script = shell.write_script(STALL)
    with Live(shell, "run", "x", "--runtime=scripted", "--script", script, "--json") as live:
        live.until("model.output.delta")
        as_json = shell.codesdk("artifacts", "--gc", "--json")
        assert (as_json.code, as_json.error["details"]["pid"]) == (4, live.process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_task_and_waits_for_its_end(shell: Shell, number: signal.Signals):
    script = shell.write_script(STALL)
    with Live(shell, "run", "x", "--runtime=scripted", "--script", script, "--json") as live:
        live.until("model.output.delta")
        live.signal(number)
        live.signal(signal.SIGTERM)
        done = live.end()
    assert (done.code, done.err) == (130, "")
    assert live.seen[-1]["type"] == "task.stopped"
    assert live.seen[-1]["payload"]["reason"] == "interrupted at the terminal"


def test_a_second_ctrl_c_quits_at_once_and_resume_goes_on(shell: Shell):
    script = shell.write_script(DEAF)
    with Live(shell, "run", "x", "--runtime=scripted", "--script", script, "--json") as live:
        live.until("model.output.delta")
        live.signal(signal.SIGINT)
        live.until("task.stop_requested")
        live.signal(signal.SIGINT)
        assert live.end().code == 130
        assert not TERMINAL_TYPES & set(types(live.seen))
    assert "interrupted" in shell.codesdk("sessions").out
    script = shell.write_script("loop: true\nturns: [{steps: [{text: Going on.}]}]")
    resumed = shell.codesdk("resume", "last", "And now?", "--script", script, "--json")
    assert resumed.code == 0
    assert types(resumed.lines)[:3] == ["task.started", "model.input", "session.resumed"]
    assert resumed.lines[-1]["payload"]["text"] == "Going on."
    assert shell.codesdk("verify", "last").code == 0
    again = shell.codesdk("resume", "last", "--script", script)
    assert (again.code, again.err.split(":")[0]) == (4, "error (CONFLICT)")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_reader_that_goes_away_ends_the_command_quietly(shell: Shell, as_json: bool):
    script = shell.write_script(TALK)
    args = ["run", "x", "--runtime=scripted", "--script", script, *(["--json"] if as_json else [])]
    with subprocess.Popen(
        [*MODULE, *args], cwd=shell.home, env=environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    ended = shell.codesdk("events", "last", "--json").out.splitlines()[-1]
    assert json.loads(ended)["type"] == "task.stopped"
