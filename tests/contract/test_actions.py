"""Every action can be asked for from everywhere, and means the same: the library, HTTP, the client, the command line."""

import asyncio
import inspect
from collections.abc import Collection, Mapping
from typing import Any, get_args

import msgspec
import pytest

from codesdk.cli.app import COMMANDS as GROUPS
from codesdk.client.service import HttpService
from codesdk.contract import actions as act
from codesdk.contract.actions import ACTIONS, Action, AnyAction
from codesdk.contract.events import HandlerOutcome, RuntimeInfo, SuggestAnswered, SuggestAnsweredEvent, Trace
from codesdk.contract.records import SessionRow, SuggestRequest, TaskRow
from codesdk.contract.service import Published
from codesdk.contract.tools import Actor
from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.routing import Router
from codesdk.engine.sessions.actions import SessionActions
from codesdk.engine.sessions.registry import SessionRegistry
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.sessions.session import LiveSession
from codesdk.handles import Handles, Session
from codesdk.testing.fakes import FakeRuntime, memory_sdk

SESSION = SessionRow(
    session_id="ses_1",
    principal="local",
    status="open",
    runtime="scripted",
    workspace="/work",
    permission_mode="ask",
    created_at="",
    updated_at="",
)
TASK = TaskRow(task_id="task_1", session_id="ses_1", state="running", created_at="")
SUGGEST = SuggestRequest(suggest_id="sug_1", session_id="ses_1", seq=1)
OUTCOME = HandlerOutcome(
    kind="handler_result", module_name="m", event_type="suggest_request.requested", value=["Ä"]
)
ANSWERED = SuggestAnsweredEvent(
    schema_version=1,
    seq=2,
    time="",
    trace=Trace(session_id="ses_1"),
    runtime=RuntimeInfo(name="scripted"),
    payload=SuggestAnswered(suggest_id="sug_1", by=Actor(kind="engine"), results=[OUTCOME]),
)
SAMPLES: dict[type[Action[Any]], Action[Any]] = {
    type(action): action
    for action in (
        act.CreateSession(runtime="scripted", workspace="/work", secrets=["s"], title="Ä/?"),
        act.EquipSession(session_id="ses_1", secrets=["s"]),
        act.StartTask(session_id="ses_1", message="Go", on_busy="reject", task_id="task_1"),
        act.ResumeSession(session_id="ses_1", message="Go on"),
        act.SteerTask(session_id="ses_1", message="left", task_id="task_1"),
        act.StopTask(session_id="ses_1", task_id="task_1", reason="enough"),
        act.ApproveCall(session_id="ses_1", tool_call_id="call/1", scope="session", attempt=2),
        act.DenyCall(session_id="ses_1", tool_call_id="call_1", reason="no", input_hash="sha256:aa"),
        act.AnswerQuestion(session_id="ses_1", approval_id="apr/1", text="Ä, please"),
        act.RevokeGrant(session_id="ses_1", tool="workspace.write"),
        act.UndoChanges(session_id="ses_1", tool_call_id="call_1"),
        act.ForkSession(session_id="ses_1", seq=3, title="other"),
        act.ChangeSettings(session_id="ses_1", title=None, values={"a": None}, stop_grace_s=1.5),
        act.MoveSession(session_id="ses_1", runtime="codex", model="m", runtime_config={"effort": "low"}),
        act.CompactSession(session_id="ses_1", strategy="summary", keep_tokens=100),
        act.SupplementTranscript(session_id="ses_1", supplement_id="s.1", text="Ä", data={"a": [1]}),
        act.RequestSuggestions(session_id="ses_1", text="tests"),
        act.AnswerSuggestRequest(session_id="ses_1", suggest_id="sug_1", results=[OUTCOME]),
        act.CloseSession(session_id="ses_1", reason="done"),
        act.DeleteSession(session_id="ses_1"),
        act.CancelJob(job_id="job/1"),
        act.RetryJob(job_id="job_1"),
    )
}
COMMAND_OF: dict[type[Action[Any]], str | None] = {
    act.CreateSession: "run",
    act.EquipSession: None,  # `run` and `resume` give what they were given; a person has no other occasion
    act.StartTask: "run",
    act.ResumeSession: "resume",
    act.SteerTask: "steer",
    act.StopTask: "stop",
    act.ApproveCall: "approve",
    act.DenyCall: "deny",
    act.AnswerQuestion: "answer",
    act.RevokeGrant: "revoke",
    act.UndoChanges: "undo",
    act.ForkSession: "fork",
    act.ChangeSettings: "set",
    act.MoveSession: "move",
    act.CompactSession: "compact",
    act.SupplementTranscript: None,  # for programs; a person says something in the conversation
    act.RequestSuggestions: "suggest",
    act.AnswerSuggestRequest: None,  # CodeSDK itself does, once its extensions were asked
    act.CloseSession: "close",
    act.DeleteSession: "delete",
    act.CancelJob: "jobs",
    act.RetryJob: "jobs",
}

every_action = pytest.mark.parametrize("kind", ACTIONS, ids=lambda kind: kind.__name__)


class Recording:
    """A service that carries nothing out, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.actions: list[Action[Any]] = []

    async def execute(self, action: Action[Any], *, key: str | None = None) -> Any:
        self.actions.append(action)
        result = type(action).result_type()
        return {SessionRow: SESSION, TaskRow: TASK, SuggestRequest: SUGGEST}.get(result)

    async def follow(self, session_id: str, after_seq: int = 0) -> Any:
        yield [Published(ANSWERED.seq, b"", ANSWERED)]

    async def session(self, session_id: str) -> SessionRow:
        return SESSION


class Wire:
    """A connection that sends nothing, and shows what would have been sent."""

    def __init__(self) -> None:
        self.sent: tuple[str, str, Any] = ("", "", None)

    async def post(
        self, path: str, body: Any, kind: Any, *, key: str | None = None, sender: Any = None
    ) -> Any:
        self.sent = ("POST", path, body)

    async def delete(self, path: str, *, key: str | None = None, sender: Any = None) -> None:
        self.sent = ("DELETE", path, None)


def test_there_is_a_sample_and_a_place_on_the_command_line_for_each():
    assert set(SAMPLES) == set(COMMAND_OF) == set(ACTIONS) == set(get_args(AnyAction))


@every_action
def test_an_action_survives_being_written_and_read(kind: type[Action[Any]]):
    sample = SAMPLES[kind]
    assert msgspec.json.decode(msgspec.json.encode(sample), type=AnyAction) == sample


def test_the_handles_reach_all_of_them():
    service = Recording()
    handles, session = Handles(service), Session(service, "ses_1")  # type: ignore[arg-type]
    calls: list[Any] = [
        handles.create_session(runtime="scripted"),
        handles.session("ses_1", secrets=["s"]),
        session.start("Go"),
        session.resume(),
        session.steer("left"),
        session.stop(),
        session.approve("call_1"),
        session.deny("call_1"),
        session.answer("apr_1", "yes"),
        session.revoke("tool"),
        session.undo(),
        session.fork(),
        session.set(title="x"),
        session.move("codex"),
        session.compact(),
        session.supplement("s.1", "text"),
        session.suggest(),
        session.answer_suggest("sug_1", []),
        session.close(),
        session.delete(),
        handles.cancel_job("job_1"),
        handles.retry_job("job_1"),
    ]

    async def run() -> None:
        for call in calls:
            await call

    asyncio.run(run())
    assert [type(action) for action in service.actions] == list(ACTIONS_IN_ORDER)


ACTIONS_IN_ORDER = (
    act.CreateSession,
    act.EquipSession,
    act.StartTask,
    act.ResumeSession,
    act.SteerTask,
    act.StopTask,
    act.ApproveCall,
    act.DenyCall,
    act.AnswerQuestion,
    act.RevokeGrant,
    act.UndoChanges,
    act.ForkSession,
    act.ChangeSettings,
    act.MoveSession,
    act.CompactSession,
    act.SupplementTranscript,
    act.RequestSuggestions,
    act.AnswerSuggestRequest,
    act.CloseSession,
    act.DeleteSession,
    act.CancelJob,
    act.RetryJob,
)


def test_the_order_above_leaves_none_out():
    assert set(ACTIONS_IN_ORDER) == set(ACTIONS)


@every_action
def test_what_the_client_sends_is_what_the_daemon_understands(kind: type[Action[Any]]):
    sample, wire = SAMPLES[kind], Wire()
    asyncio.run(HttpService(wire).execute(sample))  # type: ignore[arg-type]
    method, path, body = wire.sent
    operation, names = Router(OPERATIONS).find(method, path)
    assert operation.action is kind
    given = {}
    if operation.body is not None and not isinstance(operation.body, str):
        given = msgspec.structs.asdict(msgspec.json.decode(msgspec.json.encode(body), type=operation.body))
    assert kind(**given, **names) == sample


@every_action
def test_there_is_one_operation_for_it_with_its_scope_and_its_result(kind: type[Action[Any]]):
    (operation,) = [each for each in OPERATIONS if each.action is kind]
    result = kind.result_type()
    assert (operation.scope, operation.answer) == (kind.needs, None if result is type(None) else result)


@every_action
def test_there_is_a_command_for_it_where_that_makes_sense(kind: type[Action[Any]]):
    command = COMMAND_OF[kind]
    assert command is None or command in {name for group in GROUPS.values() for name in group}


def test_every_action_has_its_handler():
    handlers = inspect.getsource(SessionActions.__init__)
    assert all(f"act.{kind.__name__}: " in handlers for kind in ACTIONS)


INSIDE = (LiveSession, SessionRegistry, SessionActions, SessionScope)
"""What could change a session without an action."""


def test_no_name_at_the_engines_door_promises_a_live_session():
    import codesdk.engine

    public = {name: getattr(codesdk.engine, name) for name in codesdk.engine.__all__}
    assert not [name for name, value in public.items() if value in INSIDE]
    members = [
        member for value in public.values() for member in (value, *getattr(value, "__dict__", {}).values())
    ]
    functions = [member.fget if isinstance(member, property) else member for member in members]
    promised = {
        function.__qualname__: str(inspect.signature(function).return_annotation)
        for function in functions
        if inspect.isfunction(function) and not function.__name__.startswith("_")
    }
    assert len(promised) > 40, "the methods of what the door names are among them"
    assert not [what for what in promised.items() if any(kind.__name__ in what[1] for kind in INSIDE)]


async def test_whatever_changes_a_session_goes_through_execute():
    """Nobody who has an engine can reach a live session by public names, while one runs and its tools are called."""
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake")
        await session.start("Go")
        await runtime.started()
        seen = reachable(sdk.engine)
        assert {type(value).__name__ for value in seen} >= {"Ports", "Permits", "Archive", "MemoryLog"}
        assert [type(value).__name__ for value in seen if isinstance(value, INSIDE)] == []


def reachable(value: object) -> list[object]:
    """Return everything of CodeSDK that public attributes lead to."""
    found: list[object] = []
    ahead = [value]
    while ahead:
        here = ahead.pop()
        if any(here is other for other in found):
            continue
        if isinstance(here, Mapping):
            ahead += here.values()
        elif isinstance(here, Collection) and not isinstance(here, (str, bytes)):
            ahead += here
        elif type(here).__module__.startswith("codesdk."):
            found.append(here)
            ahead += [getattr(here, name) for name in dir(here) if not name.startswith("_")]
        elif inspect.ismethod(here):
            ahead.append(here.__self__)  # a bound method gives away whose it is
    return found


def test_the_repr_of_equipment_names_its_kinds_and_shows_none_of_it():
    server = {"type": "http", "url": "http://x", "headers": {"authorization": "canary-1"}}
    action = act.EquipSession(session_id="ses_1", secrets=["canary-2"], mcp_servers={"canary-3": server})
    assert repr(action) == "EquipSession(mcp_servers, secrets)"
