"""Extensions of a wrapped session: they see it and answer for it, whoever holds the data directory."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.cli.shell import Result, Shell
from tests.cli.test_wrap import command, events, executed
from tests.daemon.rig import daemon
from tests.extensions.rig import Extensions

POLICY = """
[[rules]]
id = "ask-helper"
result = "ask"
tool = "ok.read"
answer_by = ["extension:helper"]

[[rules]]
id = "no-shell"
result = "deny"
tool = "shell"
"""
SEES = """
import json

def see(event, tools):
    with open({seen!r}, "a") as file:
        file.write(json.dumps([event.type, event.payload["session"]["id"]]) + "\\n")

def decide(event, tools):
    return {{"kind": "action_request", "action_type": "approval.decide", "payload": {{"decision": {decision!r}}}}}

def register(registry):
    registry.on("turn.completed", see)
    registry.on("tool.call.denied", see)
    registry.on("approval.requested", decide)
"""


@contextmanager
def held(shell: Shell, holder: str, *options: str) -> Iterator[list[str]]:
    """Yield what `wrap` is given so that these options count: as the one who holds the directory, or beside a daemon."""
    with ExitStack() as stack:
        if holder == "daemon":
            stack.enter_context(daemon(shell.data, *options))
            yield []
        else:
            yield list(options)


def helper(shell: Shell, decision: str) -> list[str]:
    """Write an extension that answers every question and notes what it sees, and return the options that load it."""
    source = SEES.format(seen=str(shell.home / "seen"), decision=decision)
    types = ["turn.completed", "tool.call.denied", "approval.requested"]
    root = Extensions(shell.home / "ext").write("helper", source, events=types)
    (shell.home / "policy.toml").write_text(POLICY)
    return ["--extension", str(root), "--policy", str(shell.home / "policy.toml")]


@pytest.mark.parametrize("holder", ["itself", "daemon"])
@pytest.mark.parametrize(
    ("decision", "ran"), [("approve", ["ok.read"]), ("deny", [])], ids=["approves", "denies"]
)
def test_an_extension_sees_a_wrapped_session_and_answers_where_a_rule_lets_it(
    shell: Shell, holder: str, decision: str, ran: list[str]
):
    with held(shell, holder, *helper(shell, decision)) as options:
        wrapped = shell.spawn("wrap", "--interactive", *options, *command("good"))
        assert (wrapped.code, wrapped.out) == (7, "before\nafter\n"), wrapped.err
    assert executed(shell) == ran
    stored = events(shell)
    session = stored[0]["trace"]["session_id"]
    (answer,) = [event["payload"] for event in stored if event["type"] == "approval.answered"]
    assert (answer["decision"], answer["by"]) == (decision, {"kind": "extension", "id": "helper"})
    seen = [json.loads(line) for line in (shell.home / "seen").read_text().splitlines()]
    denied = ["tool.call.denied"] * (1 if ran else 2)
    assert seen == [[kind, session] for kind in [*denied, "turn.completed"]]
    audit = shell.codesdk("audit", "--json").lines
    asked = [line for line in audit if line["action"] == "extension.approval.decide"]
    assert [(line["outcome"], line["who"]["id"]) for line in asked] == [("performed", "helper")]
    assert shell.codesdk("verify", "last").code == 0


def refused(shell: Shell, *options: str) -> Result:
    ran = shell.spawn("wrap", *options, *command("good"))
    assert (ran.code, ran.out, executed(shell)) == (11, "", [])
    return ran


def test_extensions_are_for_whoever_holds_the_directory(shell: Shell, tmp_path: Path):
    assert "--extension-trust has no effect" in refused(shell, "--extension-trust", "warn").err
    with daemon(shell.data):
        words = refused(shell, *helper(shell, "approve")[:2]).err
        assert "--extension would have no effect here: start codesdkd with it" in words
    assert not (tmp_path / "seen").exists()
