import json
import signal
import subprocess
import sys

import pytest
from tests.bundle.unpacked import written
from tests.cli.conftest import EDIT
from tests.cli.shell import MODULE, Live, Shell, environment

WAIT = "turns: [{steps: [{text: Say more.}, {await_steer: true}, {text: Thanks.}]}]"


@pytest.fixture
def asking(shell: Shell):
    """A task that waits for an answer in another process."""
    script = shell.write_script(EDIT)
    options = ["--runtime=scripted", "--script", script, "--workspace", "ws", "--permission-mode", "auto"]
    with Live(shell, "run", "x", *options, "--interactive", "--json") as live:
        live.until("approval.requested")
        yield live


def test_what_waits_is_listed_and_can_be_approved(shell: Shell, asking: Live):
    call = asking.seen[-1]["payload"]["tool_call_id"]
    listed = shell.codesdk("approve", "last")
    assert listed.code == 0
    assert call in listed.out
    assert "workspace.edit" in listed.out
    assert f"codesdk deny {asking.seen[0]['trace']['session_id'][-8:]} {call[-8:]}" in listed.out
    assert [row["tool_call_id"] for row in shell.codesdk("deny", "last", "--json").lines] == [call]
    assert "waits for 1 answer" in shell.codesdk("sessions").out
    assert shell.codesdk("verify", "last").code == 0

    approved = shell.codesdk("approve", "last", call[-8:], "--reason", "looks good", "--json")
    assert (approved.code, approved.lines[0]["reached"]) == (0, "running")
    answer = asking.until("approval.answered")["payload"]
    assert (answer["decision"], answer["reason"], answer["scope"]) == ("approve", "looks good", "once")
    assert asking.end().code == 0
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"
    assert shell.codesdk("approve", "last").out == "Nothing waits for an answer.\n"


def test_a_bundle_has_what_the_process_that_runs_the_session_says_of_itself(shell: Shell, asking: Live):
    assert shell.codesdk("bundle", "last", "-o", "it.tar.gz").code == 0
    bundle = written(shell.home / "it.tar.gz")
    assert bundle.json("config.json")["launch"]["permits"]["logins"] == {}
    assert bundle.json("config.json")["policy"]["kind"] is not None
    assert bundle.json("health.json")["writer_running"] is True
    shell.codesdk("stop", "last")
    assert asking.end().code == 130


def test_a_call_can_be_approved_for_the_whole_session(shell: Shell, asking: Live):
    call = asking.seen[-1]["payload"]["tool_call_id"]
    assert shell.codesdk("approve", "last", call, "--session-wide").out == "Approved.\n"
    assert asking.until("approval.answered")["payload"]["scope"] == "session"
    assert asking.end().code == 0


def test_a_call_can_be_denied_with_a_reason_that_the_model_is_told(shell: Shell, asking: Live):
    call = asking.seen[-1]["payload"]["tool_call_id"]
    assert shell.codesdk("deny", "last", call).code == 2
    assert shell.codesdk("deny", "last", call, "--reason", "not now").out == "Denied.\n"
    assert asking.until("tool.call.denied")["payload"]["reason"] == "not now"
    assert asking.end().code == 0
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_an_answer_for_something_else_is_refused(shell: Shell, asking: Live):
    call = asking.seen[-1]["payload"]["tool_call_id"]
    assert shell.codesdk("approve", "last", call, "--attempt", "2").code == 4
    assert shell.codesdk("approve", "last", call, "--input-hash", "sha256:00").code == 4
    assert shell.codesdk("approve", "last", "call_nothere").code == 3
    assert shell.codesdk("approve", "nosuchsession", call).code == 3
    assert shell.codesdk("stop", "last", "--task", "task_nothere", "--json").error["code"] == "NOT_FOUND"


def test_a_running_task_can_be_stopped(shell: Shell, asking: Live):
    stopped = shell.codesdk("stop", "last", "--reason", "enough")
    assert (stopped.code, stopped.out) == (0, "The task was told to stop.\n")
    assert asking.end().code == 130
    assert asking.seen[-1]["type"] == "task.stopped"
    assert asking.seen[-1]["payload"]["reason"] == "enough"
    assert shell.codesdk("stop", "last").code == 4
    assert shell.codesdk("steer", "last", "more").code == 4


def test_a_running_task_can_be_steered(shell: Shell):
    script = shell.write_script(WAIT)
    with Live(shell, "run", "x", "--runtime=scripted", "--script", script, "--json") as live:
        live.until("model.output.delta")
        assert shell.codesdk("steer", "last", "this as well").code == 0
        assert live.until("task.steered")["payload"]["messages"][0]["content"][0]["text"] == "this as well"
        assert live.end().code == 0


def test_events_can_be_followed_while_they_are_written(shell: Shell, asking: Live):
    with Live(shell, "events", "last", "--follow", "--json", "--type", "t*", "--after", "1") as follower:
        follower.until("tool.call.policy_evaluated")
        call = asking.seen[-1]["payload"]["tool_call_id"]
        assert shell.codesdk("approve", "last", call).code == 0
        follower.until("task.completed")
        assert asking.end().code == 0
        written = [event for event in asking.seen if event["type"].startswith("t")]
        assert follower.seen == written
        follower.signal(signal.SIGINT)
        done = follower.end()
        assert (done.code, done.err) == (130, "")


def test_following_ends_with_the_session(shell: Shell):
    code = (
        "import asyncio, sys\nfrom codesdk import CodeSDK\n"
        "async def main():\n"
        "    async with CodeSDK.open('.codesdk') as sdk:\n"
        "        session = await sdk.create_session(runtime='scripted')\n"
        "        print('made', flush=True)\n"
        "        sys.stdin.readline()\n"
        "        await session.close('enough')\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=shell.home,
        env=environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        assert owner.stdout.readline() == "made\n"
        with Live(shell, "events", "last", "--follow", "--json") as follower:
            follower.until("session.created")
            owner.stdin.write("\n")
            owner.stdin.close()
            assert follower.end().code == 0
            assert follower.seen[-1]["type"] == "session.closed"


def test_a_question_outlives_its_process_and_runs_on_resume(shell: Shell, asking: Live):
    call = asking.seen[-1]["payload"]["tool_call_id"]
    asking.process.kill()
    asking.process.wait()
    approved = shell.codesdk("approve", "last", call[-6:])
    assert approved.code == 0
    assert approved.out == f"Approved. It runs with: codesdk resume {shell.last()[-8:]}\n"
    assert shell.codesdk("approve", "last", call).code == 0
    assert shell.codesdk("deny", "last", call, "--reason", "no").code == 4
    script = shell.write_script("loop: true\nturns: [{steps: [{text: Done.}]}]")
    resumed = shell.codesdk("resume", "last", "--script", script, "--json")
    assert resumed.code == 0
    calls = [event["payload"] for event in resumed.lines if event["type"] == "tool.call.completed"]
    assert [(c["tool_call_id"], c["attempt"], c["is_error"]) for c in calls] == [(call, 2, False)]
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"
    assert shell.codesdk("verify", "last").code == 0
    assert shell.codesdk("replay", "last").code == 0


def test_for_people_the_waiting_call_says_how_to_answer(shell: Shell):
    script = shell.write_script(EDIT)
    args = [
        "run",
        "x",
        "--runtime=scripted",
        "--script",
        script,
        "--workspace",
        "ws",
        "--permission-mode",
        "auto",
        "--interactive",
    ]
    with subprocess.Popen(
        [*MODULE, "--data-dir", "my data", *args],
        cwd=shell.home,
        env=environment({}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "waits for an answer" in line)
        command = line.partition("waits for an answer: ")[2].strip()
        assert command.startswith("codesdk --data-dir 'my data' approve ")
        _, session, call = command.rsplit(" ", 2)
        assert shell.codesdk("--data-dir", "my data", "approve", session, call).code == 0
        assert "✓ approved by user terminal" in process.stdout.read()
    assert process.returncode == 0


def test_json_of_a_listing_is_json(shell: Shell, asking: Live):
    listed = shell.codesdk("sessions", "--json").out
    assert json.loads(listed)["waiting"] == 1
