"""What a run says of calls that were denied, and how it can fail because of them."""

import signal

import pytest
from tests.cli.shell import Live, Shell

TWICE = """
turns:
  - steps:
      - call: {tool: workspace.write, input: {path: a.txt, content: x}}
      - call: {tool: workspace.write, input: {path: b.txt, content: x}}
      - call: {tool: workspace.list, input: {}}
  - steps:
      - text: I could not.
"""
NONE = "turns: [{steps: [{text: Nothing to do.}]}]"


def test_the_summary_counts_denied_calls_and_the_exit_code_can_tell(shell: Shell):
    name = shell.write_script(TWICE)
    options = (
        "run",
        "Do it",
        "--runtime=scripted",
        "--script",
        name,
        "--workspace",
        "ws",
        "--permission-mode",
        "auto",
    )
    done = shell.codesdk(*options)
    assert done.code == 0
    assert "completed · 2 calls denied" in done.out
    strict = shell.codesdk(*options, "--fail-on-denied", "--json")
    assert strict.code == 6
    work = strict.lines[-1]["payload"]["work"]
    assert (work["calls"], work["denied"]) == (3, 2)
    assert [denial["name"] for denial in work["denials"]] == ["workspace.write"] * 2
    assert all("non-interactive" in denial["reason"] for denial in work["denials"])


def test_without_a_denied_call_nothing_changes(shell: Shell):
    name = shell.write_script(NONE)
    done = shell.codesdk(
        "run", "Do it", "--runtime=scripted", "--script", name, "--workspace", "ws", "--fail-on-denied"
    )
    assert done.code == 0
    assert "calls denied" not in done.out


def test_a_resumed_task_can_fail_because_of_them_too(shell: Shell):
    stalling = shell.write_script("turns: [{steps: [{text: Begun.}, {stall: stopped}]}]", "stalling.yaml")
    with Live(
        shell, "run", "x", "--runtime=scripted", "--script", stalling, "--permission-mode=auto", "--json"
    ) as live:
        live.until("model.output.delta")
        live.signal(signal.SIGKILL)
        live.end()
    begun = "turns:\n  - steps: [{text: Begun.}]\n"  # what was said is not said again
    name = shell.write_script(TWICE.replace("turns:\n", begun))
    resumed = shell.codesdk("resume", "last", "--script", name, "--fail-on-denied", "--json")
    assert (resumed.lines[-1]["payload"]["work"]["denied"], resumed.code) == (2, 6)


@pytest.mark.parametrize("runtime", ["scripted", "codex"])
def test_what_a_script_plays_cannot_be_recorded(shell: Shell, runtime: str):
    name = shell.write_script(NONE)
    refused = shell.here("run", "Do it", "--runtime", runtime, "--script", name, "--record")
    assert (refused.code, refused.out) == (2, "")
    assert "--record keeps a model's answers" in refused.err
    assert not shell.data.exists()
