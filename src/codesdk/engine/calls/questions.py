"""Calls that ask a person: not run, but answered. The answer is what they give back.

`evaluation` has them always asked about, `approvals` waits for the answer, and `execution` records it as the result.
"""

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import PreparedCall, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.text import mend
from codesdk.contract.tools import Question, SandboxSummary
from codesdk.engine.calls.ledger import NATIVE
from codesdk.engine.sessions.scope import SessionScope

MAX_TEXT_CHARS = 8_000
MAX_OPTIONS = 64
_YES_NO = {"true": "true", "yes": "true", "y": "true", "false": "false", "no": "false", "n": "false"}


async def _unanswered(call: ToolInvocation, output: ToolSink) -> ToolRun:
    return ToolRun(result="Nobody was asked.", is_error=True)


def asking(question: Question, sandbox: SandboxSummary) -> PreparedCall:
    """Return the call of a runtime's own tool that asks a person."""
    return PreparedCall(run=_unanswered, execution_env=NATIVE, sandbox=sandbox, question=question)


def answered(prepared: PreparedCall | None, answer: str | None) -> PreparedCall | None:
    """Return a call that gives back the answer to what it asks. Any other call is returned as it is."""
    if prepared is None or prepared.question is None or answer is None:
        return prepared

    async def run(call: ToolInvocation, output: ToolSink) -> ToolRun:
        return ToolRun(result=answer)

    return msgspec.structs.replace(prepared, run=run)


def problem_of(question: Question) -> str | None:
    """Return why nobody can be asked this, or None. An adapter may hand over anything."""
    try:
        asked = msgspec.convert(mend(msgspec.to_builtins(question)), Question)
    except (TypeError, ValueError, RecursionError):
        return "it is no question"
    words = [asked.text, asked.asker or "", *asked.options]
    return (
        "it is too long to be shown"
        if max(map(len, words)) > MAX_TEXT_CHARS or len(asked.options) > MAX_OPTIONS
        else None
    )


def clean_question(scope: SessionScope, question: Question) -> Question:
    """Return a question without secrets, as it can be stored and shown."""
    return msgspec.convert(scope.redactor.value(mend(msgspec.to_builtins(question))), Question)


def unanswerable(name: str) -> InvalidRequest:
    """Return the error for a yes to a question that needs words."""
    return InvalidRequest(f"{name} is a question: answer it with text, or deny it.")


def take_answer(question: Question, text: str) -> str:
    """Return an answer as it is recorded. Raise `InvalidRequest` if it is not what the question expects."""
    given = text.strip()
    if not given and question.optional:
        return ""
    if question.expects == "text":
        return text
    if question.expects == "choice":
        if given not in question.options:
            raise InvalidRequest(f"The answer must be one of: {', '.join(question.options)}.")
        return given
    if question.expects == "boolean":
        if given.lower() not in _YES_NO:
            raise InvalidRequest("The answer must be true or false.")
        return _YES_NO[given.lower()]
    kind = int if question.expects == "integer" else float
    try:
        msgspec.json.encode(msgspec.convert(given, kind, strict=False))
        msgspec.json.decode(given.encode(), type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError):
        what = "a whole number" if kind is int else "a number"
        raise InvalidRequest(f"The answer must be {what}.") from None
    return given
