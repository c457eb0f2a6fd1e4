"""`codesdk undo`: from the stored session, through the process that runs it, and what it refuses."""

from tests.cli.conftest import EDIT
from tests.cli.shell import Live, Shell

TWO = """
turns:
  - steps:
      - call: {tool: workspace.edit, input: {path: hello.txt, old: Helo, new: Hello}}
  - steps:
      - call: {tool: workspace.write, input: {path: sub/new.txt, content: "x"}}
  - steps: [{text: Done.}]
  - steps: [{await_steer: true}]
"""


def calls(shell: Shell) -> list[str]:
    events = shell.codesdk("events", "last", "--type", "tool.call.completed", "--json").lines
    return [event["payload"]["tool_call_id"] for event in events]


def test_a_session_is_undone_the_newest_change_first(shell: Shell):
    assert shell.run(TWO).code == 0
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"
    done = shell.codesdk("undo", "last")
    assert (done.code, done.out, done.err) == (0, "removed   sub/new.txt\nrestored  hello.txt\n", "")
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"
    assert sorted(path.name for path in shell.workspace.iterdir()) == ["hello.txt"]
    assert shell.codesdk("verify", "last").code == 0
    assert shell.codesdk("replay", "last").code == 0
    again = shell.codesdk("undo", "last", "--json")
    assert (again.code, again.error["code"]) == (4, "CONFLICT")
    assert "already undone" in again.error["message"]


def test_one_call_is_undone_by_the_end_of_its_id(shell: Shell):
    assert shell.run(TWO).code == 0
    edit, write = calls(shell)
    done = shell.codesdk("undo", "last", edit[-8:], "--json")
    assert (done.code, done.lines) == (
        0,
        [
            {
                "restored": [{"path": "hello.txt", "tool_call_id": edit, "attempt": 1}],
                "refused": [],
            }
        ],
    )
    assert (shell.workspace / "sub" / "new.txt").read_text() == "x"
    again = shell.codesdk("undo", "last", edit)
    assert (again.code, again.err) == (
        4,
        f"error (CONFLICT): Nothing was undone. {edit}: it was already undone.\n",
    )
    assert shell.codesdk("undo", "last", "call_nothere").code == 3
    assert shell.codesdk("undo", "nosuchsession").code == 3
    assert shell.codesdk("undo", "last", write).code == 0


def test_a_file_that_was_changed_since_is_named_and_the_rest_undone(shell: Shell):
    assert shell.run(TWO).code == 0
    edit, _ = calls(shell)
    (shell.workspace / "hello.txt").write_text("mine\n")
    done = shell.codesdk("undo", "last")
    assert (done.code, done.out) == (1, "removed   sub/new.txt\n")
    assert done.err == (
        f"not undone: {edit}: hello.txt is not as the tool left it; what was done since then would be lost\n"
    )
    assert (shell.workspace / "hello.txt").read_text() == "mine\n"


def test_a_session_that_runs_is_not_undone_and_another_one_is_by_the_same_process(shell: Shell):
    assert shell.run(EDIT).code == 0
    stored = shell.last()
    script = shell.write_script("turns: [{steps: [{text: Say more.}, {await_steer: true}]}]", "wait.yaml")
    with Live(
        shell, "run", "x", "--runtime=scripted", "--script", script, "--workspace", "ws", "--json"
    ) as live:
        live.until("model.output.delta")
        busy = shell.codesdk("undo", "last", "--json")
        assert (busy.code, busy.error["code"]) == (4, "SESSION_BUSY")
        assert shell.codesdk("undo", stored).out == "restored  hello.txt\n"
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"
