"""Approvals → questions that an editor can show, and its answers → actions. Pure.

A call is a permission request. A question is a form, where the editor has forms; else its options are those of a
permission request; else it is text, and the next prompt is the answer.
"""

from typing import Any, cast

import msgspec
from acp.schema import (
    CreateFormSessionElicitationRequest,
    ElicitationSchema,
    PermissionOption,
    RequestPermissionRequest,
    ToolCall,
    ToolCallUpdate,
)

from codesdk.contract import events as ev
from codesdk.contract.actions import Action, AnswerQuestion, ApproveCall, DenyCall
from codesdk.contract.records import ApprovalRow
from codesdk.contract.tools import Question

_ANSWER = "answer"
_ALLOW, _ALWAYS, _REJECT, _PICK = "allow", "allow_session", "reject", "option_"
_JSON_TYPES = {
    "text": "string",
    "choice": "string",
    "boolean": "boolean",
    "number": "number",
    "integer": "integer",
}
DECLINED = "declined in the editor"
CANCELLED = "cancelled in the editor"


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for an answer, whoever gives it."""

    approval_id: str
    summary: str
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    question: Question | None = None
    budget: bool = False
    carried: bool = False
    """Whether its task was interrupted: once it is answered, somebody has to resume the session."""

    @classmethod
    def of(cls, payload: ev.ApprovalRequested | ev.ApprovalCarried) -> "Open":
        """Return what an event asks."""
        return cls(
            approval_id=payload.approval_id,
            summary=payload.summary,
            tool_call_id=payload.tool_call_id,
            attempt=payload.attempt,
            input_hash=payload.input_hash,
            question=payload.question,
            budget=isinstance(payload, ev.ApprovalRequested) and payload.kind == "budget",
            carried=isinstance(payload, ev.ApprovalCarried),
        )

    @classmethod
    def of_row(cls, row: ApprovalRow) -> "Open":
        """Return what a stored approval asks."""
        return cls(
            approval_id=row.approval_id,
            summary=row.summary,
            tool_call_id=row.tool_call_id,
            attempt=row.attempt,
            input_hash=row.input_hash,
            question=row.question,
            budget=row.kind == "budget",
            carried=row.state == "carried",
        )

    @property
    def choices(self) -> list[str]:
        """The answers that a question can only, or may, have."""
        if self.question is None:
            return []
        return ["true", "false"] if self.question.expects == "boolean" else self.question.options

    @property
    def needs_words(self) -> bool:
        """Whether the answer has to be typed."""
        return self.question is not None and not self.choices

    def approve(self, session_id: str, *, for_session: bool = False) -> ApproveCall:
        """Return the action that lets it go on."""
        return ApproveCall(
            session_id=session_id,
            tool_call_id=self.tool_call_id or self.approval_id,
            attempt=self.attempt,
            input_hash=self.input_hash,
            scope="session" if for_session else "once",
        )

    def deny(self, session_id: str, reason: str) -> DenyCall:
        """Return the action that refuses it."""
        return DenyCall(
            session_id=session_id,
            tool_call_id=self.tool_call_id or self.approval_id,
            attempt=self.attempt,
            input_hash=self.input_hash,
            reason=reason,
        )

    def answer(self, session_id: str, text: str) -> AnswerQuestion:
        """Return the action that answers a question."""
        return AnswerQuestion(session_id=session_id, approval_id=self.approval_id, text=text)


def permission(session_id: str, asked: Open, shown: ToolCall | None = None) -> RequestPermissionRequest:
    """Return the request that asks for a decision, or for one of a question's options.

    It says again what the call is, as `shown`: an editor may decide by its kind, or ask in a window of its own.
    """
    if asked.question is not None:
        options = [
            PermissionOption(option_id=f"{_PICK}{place}", name=choice, kind="allow_once")
            for place, choice in enumerate(asked.choices)
        ]
        options.append(PermissionOption(option_id=_REJECT, name="Decline", kind="reject_once"))
    else:
        options = [PermissionOption(option_id=_ALLOW, name=_allow(asked), kind="allow_once")]
        if not asked.budget:
            options.append(
                PermissionOption(option_id=_ALWAYS, name="Allow for this session", kind="allow_always")
            )
        options.append(PermissionOption(option_id=_REJECT, name="Deny", kind="reject_once"))
    call = ToolCallUpdate(
        tool_call_id=asked.tool_call_id or asked.approval_id,
        title=_title(asked, shown),
        kind=shown.kind if shown is not None else "other",
        status="pending",
        content=shown and shown.content,
        locations=shown and shown.locations,
        raw_input=shown and shown.raw_input,
        field_meta={"codesdk": {"approval": asked.approval_id}},
    )
    return RequestPermissionRequest(session_id=session_id, tool_call=call, options=options)


def _title(asked: Open, shown: ToolCall | None) -> str:
    if asked.question is not None:
        return asked.question.text
    return asked.summary if shown is None else shown.title


def _allow(asked: Open) -> str:
    return "Grant the same amount again" if asked.budget else "Allow"


def permission_answer(session_id: str, asked: Open, result: Any) -> Action[None]:
    """Return the action for what an editor chose. Anything that is not one of its options denies."""
    found: Any = cast("dict[str, Any]", result).get("outcome") if isinstance(result, dict) else None
    outcome = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if outcome.get("outcome") == "cancelled":
        return asked.deny(session_id, CANCELLED)
    chosen: Any = outcome.get("optionId")
    if asked.question is not None:
        for place, choice in enumerate(asked.choices):
            if chosen == f"{_PICK}{place}":
                return asked.answer(session_id, choice)
    elif chosen in (_ALLOW, _ALWAYS):
        return asked.approve(session_id, for_session=chosen == _ALWAYS and not asked.budget)
    return asked.deny(session_id, "denied in the editor" if asked.question is None else DECLINED)


def form(session_id: str, asked: Open) -> CreateFormSessionElicitationRequest:
    """Return the form for a question: one field."""
    question = asked.question
    assert question is not None, "only questions have a form"
    field: dict[str, Any] = {"type": _JSON_TYPES[question.expects], "title": "Answer"}
    if question.expects == "choice":
        field["enum"] = question.options
    elif question.options:
        field["description"] = "For example: " + ", ".join(question.options)
    schema = ElicitationSchema.model_validate(
        {
            "type": "object",
            "properties": {_ANSWER: field},
            "required": [] if question.optional else [_ANSWER],
        }
    )
    return CreateFormSessionElicitationRequest(
        mode="form",
        session_id=session_id,
        tool_call_id=asked.tool_call_id,
        message=question.text,
        requested_schema=schema,
    )


def form_answer(session_id: str, asked: Open, result: Any) -> Action[None]:
    """Return the action for a form that came back."""
    found = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
    if found.get("action") != "accept":
        return asked.deny(session_id, CANCELLED if found.get("action") == "cancel" else DECLINED)
    content: Any = found.get("content")
    value: Any = cast("dict[str, Any]", content).get(_ANSWER) if isinstance(content, dict) else None
    if value is None:
        return asked.answer(session_id, "")
    return asked.answer(session_id, value if isinstance(value, str) else msgspec.json.encode(value).decode())
