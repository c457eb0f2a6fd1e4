"""`codesdk run --output-schema FILE`: the result on stdout, all else on stderr."""

import json
from pathlib import Path

import pytest
from tests.cli.shell import Result, Shell

SCHEMA = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}
ANSWER = """
turns:
  - steps: [{text: Let me see.}, {call: {tool: task.answer, input: {stars: 4}}}]
  - steps: [{text: Four stars.}]
"""
NEVER = "turns: [{steps: [{text: No.}]}, {steps: [{text: No.}]}, {steps: [{text: No.}]}]"


def run(shell: Shell, script: str, schema: str, *options: str) -> Result:
    Path(shell.home, "schema.json").write_text(schema)
    named = shell.write_script(script)
    given = ("--runtime=scripted", "--script", named, "--workspace", "ws", "--output-schema", "schema.json")
    return shell.codesdk("run", "Rate it.", *given, *options)


def test_the_result_is_all_that_stdout_has_and_the_work_is_shown_on_stderr(shell: Shell):
    ran = run(shell, ANSWER, json.dumps(SCHEMA))
    assert (ran.code, ran.out) == (0, '{"stars":4}\n')
    for words in ("Let me see.", "● task.answer", "Four stars.", "✓ completed", f"session {shell.last()}"):
        assert words in ran.err
    again = shell.codesdk("verify", "last")
    assert again.code == 0


def test_a_large_result_is_printed_whole(shell: Shell):
    note = "x" * 100_000
    script = ANSWER.replace("stars: 4", f"stars: 4, note: {note}")
    ran = run(shell, script, json.dumps(SCHEMA))
    assert (ran.code, json.loads(ran.out)) == (0, {"stars": 4, "note": note})


def test_with_json_the_last_event_has_it(shell: Shell):
    ran = run(shell, ANSWER, json.dumps(SCHEMA), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[-1]["payload"]["data"] == {"stars": 4}


def test_a_task_without_a_result_fails_and_stdout_stays_empty(shell: Shell):
    ran = run(shell, NEVER, json.dumps(SCHEMA))
    assert (ran.code, ran.out) == (1, "")
    assert "The tool task_answer was not called." in ran.err
    assert ran.err.count("You ended your turn, but the task has no result yet.") == 2


def test_chat_prints_the_result_of_its_one_answer_and_wants_one_answer_for_it(shell: Shell):
    Path(shell.home, "schema.json").write_text(json.dumps(SCHEMA))
    named = shell.write_script(ANSWER)
    given = ("--runtime=scripted", "--script", named, "--workspace", "ws", "--output-schema", "schema.json")
    one = shell.codesdk("chat", "-p", "Rate it.", *given)
    assert (one.code, one.out) == (0, '{"stars":4}\n')
    whole = shell.codesdk("chat", "-p", "Rate it.", *given, "--json")
    assert whole.lines[-1]["result"]["data"] == {"stars": 4}
    talking = shell.codesdk("chat", *given)
    assert talking.code != 0
    assert "--output-schema is for one answer: give the message with -p." in talking.err


def test_a_session_is_gone_on_with(shell: Shell):
    Path(shell.home, "schema.json").write_text(json.dumps(SCHEMA))
    turns = "turns:\n  - steps: [{text: Hi.}]\n" + ANSWER.split("turns:\n")[1]
    named = shell.write_script(turns, "both.yaml")
    first = shell.codesdk("run", "Hi", "--runtime=scripted", "--script", named, "--workspace", "ws")
    assert first.code == 0
    ran = shell.codesdk(
        "run", "Rate it.", "--session", "last", "--script", named, "--output-schema", "schema.json"
    )
    assert (ran.code, ran.out) == (0, '{"stars":4}\n')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type": "object",\n  "properties": }', "schema.json:2:17 is not JSON: Expecting value."),
        ("[1]", "schema.json is not a JSON Schema: it must be an object."),
        ('{"type": "array"}', 'schema.json: the output schema must have "type": "object".'),
        (
            '{"type": "object", "properties": {"stars": {"type": "integre"}}}',
            "schema.json: the output schema cannot be used at properties/stars/type:",
        ),
        ("[" * 100_000, "schema.json is not JSON in UTF-8, or is nested too deeply."),
    ],
)
def test_a_file_that_is_no_schema_is_named_with_the_place(shell: Shell, text: str, why: str):
    Path(shell.home, "schema.json").write_text(text)
    ran = shell.here("run", "x", "--runtime=scripted", "--output-schema", "schema.json")
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err


def test_a_file_that_is_not_there_is_named(shell: Shell):
    ran = shell.here("run", "x", "--runtime=scripted", "--output-schema", "none.json")
    assert (ran.code, ran.err) == (
        2,
        "error (INVALID_REQUEST): The output schema none.json cannot be read: No such file or directory.\n",
    )
