"""The result that a task with an output schema owes: how it is asked for, what is wrong with it, and what it is.

A runtime gives it with the tool `task.answer`, whose calls are checked like all others, or as its model's last
answer, which is checked here. What is said here is recorded, so that replay finds it again.
"""

from typing import Any, cast

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.capabilities import Capabilities, OutputWay
from codesdk.contract.errors import ErrorInfo, InvalidRequest
from codesdk.contract.tools import ANSWER_TOOL
from codesdk.engine.log.state import ActiveTask, Answer
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.validation import check_settings, is_deep
from codesdk.tools import OutputSchema, is_strict, wire_name

MAX_SCHEMA_BYTES = 64 * 1024
MAX_REMINDERS = 2
"""How often a runtime that ends without a result is asked for it again."""
MAX_REFUSED = 10
"""How many answers of one task are refused before it fails: a model may go on for ever within one turn."""
_QUOTED_CHARS = 500
_TOOL = wire_name(ANSWER_TOOL)  # what the model knows it by
NOT_CALLED = f"The tool {_TOOL} was not called."


def take_schema(scope: SessionScope, given: dict[str, Any], capabilities: Capabilities) -> dict[str, Any]:
    """Return an output schema as it is stored. Raise `InvalidRequest` if results cannot be checked with it."""
    data = check_settings(given, "An output schema", MAX_SCHEMA_BYTES)
    # Encoded and decoded: what is checked is what is stored and sent, without secrets.
    schema: dict[str, Any] = scope.redactor.value(msgspec.json.decode(data))
    try:
        OutputSchema(schema)
        hash_json(schema)  # the record of the tools that are offered has its hash
    except ValueError as error:
        raise InvalidRequest(f"No task was started: {error}. Give a JSON Schema of an object.") from None
    if way_for(schema, capabilities) == "tool" and not capabilities.supports_tool_calls:
        raise InvalidRequest(
            f"The runtime {scope.state.runtime_name} calls no tools, so it cannot give a result that fits a schema."
        )
    return schema


def way_for(schema: dict[str, Any], capabilities: Capabilities) -> OutputWay:
    """Return how a runtime gives a result: a provider would refuse a schema that is not strict."""
    return "native" if capabilities.output_schema == "native" and is_strict(schema) else "tool"


def asking(schema: dict[str, Any]) -> str:
    """Return what a runtime is told at the start of a task whose result it gives with a tool.

    With the schema, although the tool has it: not every agent shows its model the tool as it is offered.
    """
    written = msgspec.json.encode(schema).decode()
    return (
        f"When the work is done, give its result by calling the tool {_TOOL}. The input of that call is the result;"
        f" what you say besides is not read. It must fit this JSON Schema: {written}"
    )


def reminder(task: ActiveTask, problem: str) -> str:
    """Return what a runtime is told that has ended its turn without a result."""
    if task.output_way == "native":
        return (
            f"Your last answer is not the result that was asked for. {problem} Answer again, with JSON that fits the"
            " schema and with nothing else."
        )
    return f"You ended your turn, but the task has no result yet. {problem} Call {_TOOL} with the result now."


def missing(task: ActiveTask) -> str | None:
    """Return why a task has no result, as a sentence; None if it has one, or owes none."""
    if task.output_schema is None:
        return None
    if task.output_way == "native":
        return _problem(task.output_schema, task.text)
    return None if task.answer is not None else task.refusal or NOT_CALLED


async def answer_of(scope: SessionScope, task: ActiveTask) -> Answer | None:
    """Return a task's result as its end records it; None if it owes none. It must not be missing."""
    if task.output_schema is None or task.output_way == "tool":
        return task.answer
    data = task.text.encode()
    if len(data) > scope.settings.result_inline_bytes:
        return Answer(data_ref=await scope.put_artifact(data, "application/json", "result"))
    return Answer(data=msgspec.json.decode(data))


def unanswered(task: ActiveTask, runtime: str) -> ErrorInfo | None:
    """Return the error of a task that has come to no result; None if it has one, or owes none."""
    problem = missing(task)
    if problem is None:
        return None
    said = problem if len(problem) <= _QUOTED_CHARS else problem[: _QUOTED_CHARS - 1] + "…"
    message = (
        f"The model gave no result that fits the output schema. {said} Change the wording, the schema or the model,"
        " and start the task again."
    )
    return ErrorInfo(code="MODEL_ERROR", message=message, retryable=False, runtime=runtime)


def _problem(schema: dict[str, Any], text: str) -> str | None:
    data = text.encode()
    if is_deep(data):
        return "It is nested too deeply."
    try:
        value: Any = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return "It is not JSON."
    return OutputSchema(schema).problem(cast("object", value))
