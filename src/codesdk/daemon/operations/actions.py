"""Operations that change sessions: one row of the table per action of the contract.

The action says its route, its scope and its result; the body is the action without the names in the path.
"""

from typing import Any, Literal, cast

import msgspec

from codesdk.contract import actions as act
from codesdk.contract.actions import Action
from codesdk.contract.api import Body
from codesdk.daemon.limits import check_work
from codesdk.daemon.operations.operation import Answer, Call, Operation
from codesdk.daemon.routing import names_in

_Method = Literal["GET", "POST", "DELETE"]


def body_of(kind: type[Action[Any]], path: str) -> type[msgspec.Struct]:
    """Return the type of an action's body: its fields except those in the path."""
    in_path = set(names_in(path))
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (field.name, field.type) if field.required else (field.name, field.type, _default(field))
        for field in msgspec.structs.fields(kind)
        if field.name not in in_path
    ]
    doc = {"__doc__": kind.__doc__}
    return msgspec.defstruct(kind.__name__, fields, bases=(Body,), namespace=doc, frozen=True, kw_only=True)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is msgspec.NODEFAULT:
        return field.default
    return msgspec.field(default_factory=field.default_factory)


async def _execute(call: Call) -> Answer:
    """Carry out the action that a request stands for."""
    kind = call.operation.action
    assert kind is not None, "only actions are executed"
    given = {} if call.body is None else msgspec.structs.asdict(call.body)
    action = kind(**given, **call.path)
    service = call.sdk.service
    await check_work(action, call.caller.principal, service, call.tasks, draining=call.draining)
    return cast("Answer", await service.execute(action, key=call.key))


def _row(kind: type[Action[Any]], *, status: int = 200, group: str = "sessions") -> Operation:
    method, _, path = kind.route.partition(" ")
    result = kind.result_type()
    nothing = result is type(None)
    return Operation(
        name=kind.__name__[0].lower() + kind.__name__[1:],
        method=cast("_Method", method),
        path=path,
        scope=kind.needs,
        run=_execute,
        action=kind,
        # A body that says nothing has to be JSON, too: no page in a browser can send that from elsewhere.
        body=None if method == "DELETE" else body_of(kind, path),
        answer=None if nothing else result,
        status=204 if nothing else status,
        group=group,
    )


OPERATIONS = (
    _row(act.CreateSession, status=201),
    _row(act.EquipSession),
    _row(act.ForkSession, status=201),
    _row(act.ChangeSettings),
    _row(act.MoveSession),
    _row(act.CompactSession),
    _row(act.SupplementTranscript),
    _row(act.RequestSuggestions, status=202),
    _row(act.AnswerSuggestRequest),
    _row(act.CloseSession),
    _row(act.DeleteSession),
    _row(act.UndoChanges),
    _row(act.StartTask, status=202, group="tasks"),
    _row(act.ResumeSession, status=202),
    _row(act.StopTask, status=202, group="tasks"),
    _row(act.SteerTask, status=202, group="tasks"),
    _row(act.ApproveCall, group="approvals"),
    _row(act.DenyCall, group="approvals"),
    _row(act.AnswerQuestion, group="approvals"),
    _row(act.RevokeGrant, group="approvals"),
    _row(act.CancelJob, group="jobs"),
    _row(act.RetryJob, group="jobs"),
)
