"""`codesdk policy`, `grants`, `revoke`, `run --policy` and `--allow-yolo`."""

import json

import pytest
from tests.cli.conftest import EDIT
from tests.cli.shell import Live, Shell, Terminal

RULES = """
[[rules]]
id = "no-env"
result = "deny"
path = "**/.env"
reason = "It holds secrets."

[[rules]]
id = "careful"
result = "ask"
argv = ["git", "push"]

[[rules]]
id = "docs"
result = "allow"
tool = "workspace.*"
path = "docs/**"
"""
NO_EDITS = '[[rules]]\nid = "no-edits"\nresult = "deny"\ntool = "workspace.edit"\nreason = "Only look."\n'


@pytest.fixture
def rules(shell: Shell) -> str:
    (shell.home / "policy.toml").write_text(RULES)
    return "policy.toml"


def test_a_decision_is_explained_rule_by_rule(shell: Shell, rules: str):
    checked = shell.codesdk(
        "policy", "check", "--tool", "workspace.edit", "--path", "docs/a.md", "--policy", rules
    )
    assert (checked.code, checked.err) == (0, "")
    assert checked.out == (
        "workspace.edit  class write, mode ask\n"
        "  path: docs/a.md\n"
        "\n"
        "  · no-env    deny   the path does not match\n"
        "  · careful   ask    the argv does not match\n"
        "  ✓ docs      allow  matches\n"
        "    mode:ask  ask    does not count: a rule decides\n"
        "\n"
        "→ allow, by docs: The rule docs allows it.\n"
    )


def test_a_decision_is_explained_as_json(shell: Shell, rules: str):
    command = ("--tool", "my.shell", "--argv", "git push 'to there'", "--mode", "yolo", "--policy", rules)
    assert shell.codesdk("policy", "check", *command, "--json").lines == [
        {
            "question": {
                "session_id": "",
                "name": "my.shell",
                "tool_class": "dangerous",
                "input": {},
                "permission_mode": "yolo",
                "subjects": {"argv": ["git", "push", "to there"]},
            },
            "looked": [
                {"rule": "no-env", "result": "deny", "missed": "path"},
                {"rule": "careful", "result": "ask", "missed": None},
            ],
            "opinions": [
                {
                    "source": "codesdk",
                    "result": "allow",
                    "rule": "mode:yolo",
                    "reason": "The permission mode yolo allows every tool.",
                },
                {
                    "source": "codesdk",
                    "result": "ask",
                    "rule": "careful",
                    "reason": "The rule careful asks before this is done.",
                },
            ],
            "decision": {
                "source": "codesdk",
                "result": "ask",
                "rule": "careful",
                "reason": "The rule careful asks before this is done.",
            },
        }
    ]


def test_without_rules_the_mode_speaks_and_a_built_in_tool_has_its_own_class(shell: Shell):
    given = json.dumps({"path": "a.txt"})
    checked = shell.codesdk(
        "policy", "check", "--tool", "workspace.read", "--input", given, "--mode", "auto", "--json"
    )
    (explained,) = checked.lines
    assert (explained["question"]["tool_class"], explained["looked"]) == ("read_only", [])
    assert explained["decision"]["rule"] == "mode:auto:read_only"


def test_tools_that_are_off_by_default_are_known_too(shell: Shell):
    def touched(tool: str, given: object) -> object:
        ran = shell.codesdk("policy", "check", "--tool", tool, "--input", json.dumps(given), "--json")
        return [ran.lines[0]["question"][name] for name in ("tool_class", "subjects")]

    assert touched("workspace.exec", {"argv": ["git", "push"]}) == ["dangerous", {"argv": ["git", "push"]}]
    assert touched("http.fetch", {"url": "https://Example.com/a"}) == ["network", {"hosts": ["example.com"]}]
    assert touched("workspace.write", {"path": "a/b", "content": ""}) == ["write", {"paths": ["a/b"]}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tool", "t.t", "--input", "{"], "--input is not JSON"),
        (["--tool", "workspace.read", "--input", "{}"], "--input does not fit the tool"),
        (["--tool", "t.t", "--argv", "'"], "--argv cannot be split into words"),
        (["--tool", "t.t", "--policy", "none.toml"], "none.toml: the policy cannot be read"),
    ],
)
def test_what_cannot_be_checked_is_bad_input(shell: Shell, arguments: list[str], words: str):
    refused = shell.codesdk("policy", "check", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert words in refused.err


def test_a_run_obeys_its_policy(shell: Shell):
    (shell.home / "policy.toml").write_text(NO_EDITS)
    ran = shell.run(EDIT, "--policy", "policy.toml")
    assert ran.code == 0
    (denied,) = [event["payload"] for event in ran.lines if event["type"] == "tool.call.denied"]
    assert (denied["reason"], [one["rule"] for one in denied["policy_snapshot"]["sources"]]) == (
        "Only look.",
        ["mode:yolo", "no-edits"],
    )
    assert (shell.workspace / "hello.txt").read_text() == "Helo, world\n"


def test_yolo_needs_the_operators_word(shell: Shell):
    script = shell.write_script(EDIT)
    command = [
        "run",
        "Go",
        "--runtime=scripted",
        "--script",
        script,
        "--workspace",
        "ws",
        "--permission-mode",
        "yolo",
        "--json",
    ]
    refused = shell.codesdk(*command)
    assert (refused.code, refused.out, refused.error["code"]) == (2, "", "FORBIDDEN")
    assert "--allow-yolo" in refused.error["message"]
    assert shell.codesdk(*command, CODESDK_ALLOW_YOLO="1").code == 0


def test_a_new_policy_is_tried_on_past_calls(stored: Shell):
    (stored.home / "new.toml").write_text(NO_EDITS)
    replayed = stored.codesdk("policy", "replay", "--policy", "new.toml", "last")
    name = stored.last()
    (seq,) = [
        event["seq"]
        for event in stored.codesdk("events", "last", "--json").lines
        if event["type"] == "tool.call.approved" and event["payload"]["name"] == "workspace.edit"
    ]
    assert (replayed.code, replayed.out) == (
        1,
        f"✗ {name}: 2 calls, 1 would be decided differently\n"
        f'  seq {seq}: workspace.edit {{"path":"hello.txt","old":"Helo","new":"Hello"}}  allow → deny  by no-edits\n',
    )
    (as_json,) = stored.codesdk("policy", "replay", "--policy", "new.toml", "--all", "--json").lines
    assert (as_json["session_id"], as_json["calls"], as_json["differs"]) == (name, 2, 1)
    assert [(one["tool"], one["before"]["rule"], one["after"]["rule"]) for one in as_json["notable"]] == [
        ("workspace.edit", "mode:yolo", "no-edits")
    ]
    (stored.home / "none.toml").write_text("")
    same = stored.codesdk("policy", "replay", "--policy", "none.toml", "last")
    assert (same.code, same.out) == (0, f"✓ {name}: 2 calls, all would be decided the same\n")
    assert stored.codesdk("policy", "replay", "--policy", "none.toml").code == 2


def test_grants_are_listed_and_taken_back_while_a_task_runs_and_after(shell: Shell):
    assert shell.run(EDIT, mode="auto").code == 0
    assert shell.codesdk("grants", "last").out == "No tool is approved for the whole session.\n"
    assert shell.codesdk("grants", "last", "--json").out == ""
    options = [
        "--runtime=scripted",
        "--script",
        "script.yaml",
        "--workspace",
        "ws",
        "--permission-mode",
        "auto",
    ]
    with Live(shell, "run", "x", *options, "--interactive", "--json") as live:
        call = live.until("approval.requested")["payload"]["tool_call_id"]
        assert shell.codesdk("approve", "last", call, "--session-wide", "--reason", "go").code == 0
        answered = live.until("approval.answered")
        assert live.end().code == 0
    (grant,) = shell.codesdk("grants", "last", "--json").lines
    assert grant == {
        "tool": "workspace.edit",
        "rule": "mode:auto:write",
        "by": {"kind": "user", "id": "terminal"},
        "granted_at": answered["time"],
        "reason": "go",
    }
    listed = shell.codesdk("grants", "last").out
    session = shell.last()
    assert "workspace.edit  asked by mode:auto:write, approved by user terminal at " in listed
    assert f"codesdk revoke {session[-8:]} workspace.edit" in listed
    missing = shell.codesdk("revoke", "last", "workspace.read", "--json")
    assert (missing.code, missing.error["code"]) == (3, "NOT_FOUND")
    assert (
        shell.codesdk("revoke", "last", "workspace.edit").out == "workspace.edit will be asked about again.\n"
    )
    assert shell.codesdk("grants", "last").out == "No tool is approved for the whole session.\n"
    last = shell.codesdk("events", "last", "--json").lines[-1]
    assert (last["type"], last["payload"]["tool"]) == ("grant.revoked", "workspace.edit")
    assert [shell.codesdk(name, "last").code for name in ("verify", "replay")] == [0, 0]


def test_a_person_is_told_which_rule_asks(shell: Shell):
    rule = '[[rules]]\nid = "careful"\nresult = "ask"\ntool = "workspace.edit"\nreason = "It goes live."\n'
    (shell.home / "policy.toml").write_text(rule)
    script = shell.write_script(EDIT)
    options = [
        "--runtime=scripted",
        "--script",
        script,
        "--workspace",
        "ws",
        "--permission-mode",
        "yolo",
        "--allow-yolo",
    ]
    with Terminal(shell, "run", "x", *options, "--policy", "policy.toml") as terminal:
        terminal.expect("+ Hello")
        terminal.expect("careful: It goes live.")
        terminal.expect("show > ")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert (shell.workspace / "hello.txt").read_text() == "Hello, world\n"


def test_presets_are_listed_shown_and_obeyed(shell: Shell):
    listed = shell.codesdk("policy", "list")
    assert (listed.code, listed.out) == (
        0,
        "edits      Edits inside the workspace run, everything else asks.\n"
        "read-only  Reading in the workspace runs, everything else is denied.\n",
    )
    shown = shell.codesdk("policy", "show", "read-only")
    (shell.home / "mine.toml").write_text(shown.out)  # a preset is a beginning for a file of one's own
    command = ("policy", "check", "--tool", "workspace.exec", "--argv", "make", "--json")
    for given, result in (("edits", "ask"), ("read-only", "deny"), ("mine.toml", "deny")):
        (explained,) = shell.codesdk(*command, "--policy", given).lines
        assert explained["decision"]["result"] == result
    ran = shell.run(EDIT, "--policy", "edits")
    assert (ran.code, (shell.workspace / "hello.txt").read_text()) == (0, "Hello, world\n")
    (shell.home / "edits").write_text("")
    refused = shell.codesdk(*command, "--policy", "edits")
    assert (refused.code, refused.out) == (2, "")
    assert "Write ./edits for the file, or preset:edits for the preset." in refused.err
