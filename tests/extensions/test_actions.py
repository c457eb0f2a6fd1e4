"""What handlers ask for, carried out by a real engine: within their event, once, in their name, and only if they may."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.extensions import probe
from tests.extensions.requirements import shows
from tests.extensions.rig import ASKS, WRITES, Emitted, Extensions, extended, session_in, settle

from codesdk import CodeSDK, NotFound, Session
from codesdk.contract import events as ev
from codesdk.contract.errors import Forbidden
from codesdk.contract.tools import Actor
from codesdk.engine import replay_session, verify_session
from codesdk.extensions import ActionResult, ExtensionOptions, HandlerError, Origin

pytestmark = pytest.mark.anyio

APPROVES = """
async def handle(event, tools):
    return {{"kind": "action_request", "action_type": "approval.decide", "request_id": "r1",
             "payload": {{"decision": {decision!r}, "reason": "by a rule of mine", {more}}}}}
def register(registry): registry.on({type!r}, handle, {priority})
"""


def decides(
    decision: str = "approve", more: str = "", kind: str = "approval.requested", priority: int = 100
) -> str:
    return APPROVES.format(decision=decision, more=more, type=kind, priority=priority)


def actions(emitted: Emitted, kind: str = "approval.requested") -> list[tuple[str, str]]:
    return [(one.module_name, one.status) for one in emitted.of(kind) if isinstance(one, ActionResult)]


@shows("action-request", "action-approval", "action-result")
async def test_an_extension_that_a_rule_names_answers_its_question(ext: Extensions, tmp_path: Path):
    ext.write("helper", decides())
    async with extended(ext, tmp_path, stored=True) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        assert (await task.result()).text == "Done."
        await settle(sdk)
        assert actions(emitted) == [("helper", "performed")]
        answered = [
            (event.payload.by, event.payload.scope, event.trace.client_id)
            async for event in task.events()
            if isinstance(event.payload, ev.ApprovalAnswered)
        ]
        assert answered == [(Actor(kind="extension", id="helper"), "once", "extension:helper")]
        assert (tmp_path / "ws" / "a.txt").read_text() == "hello"
        assert (await session.grants()) == []
        assert sdk.audit is not None
        records = await sdk.audit.read()
        named = [(r.action, r.outcome) for r in records if (r.who.kind, r.who.id) == ("extension", "helper")]
        assert sorted(named) == [
            ("approval.answer", "approved"),
            ("extension.approval.decide", "performed"),
            ("tool.decision", "allowed"),
        ]
        assert await problems(sdk, session) == []


async def problems(sdk: CodeSDK, session: Session) -> list[Any]:
    """Return what `verify` and `replay` find."""
    log, blobs = sdk.archive.log, sdk.archive.blobs
    _, differences = await replay_session(log, blobs, session.id)
    return [*await verify_session(log, blobs, session.id), *differences]


NOBODY = ASKS.replace('answer_by = ["extension:helper"]', "")
OTHER = ASKS.replace("extension:helper", "extension:other")


@pytest.mark.parametrize("policy", [NOBODY, OTHER, ""])
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_nobody_else_answers_and_the_question_stays_open(
    ext: Extensions, tmp_path: Path, policy: str, decision: str
):
    ext.write("helper", decides(decision))
    async with extended(ext, tmp_path, policy=policy) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                await settle(sdk)
                assert actions(emitted) == [("helper", "forbidden")]
                await task.approve(event.payload.tool_call_id or "")
        assert await problems(sdk, session) == []


async def test_a_deny_by_rule_is_never_asked_about_and_an_extension_can_deny_what_it_may_answer(
    ext: Extensions, tmp_path: Path
):
    ext.write("helper", decides("deny"))
    async with extended(ext, tmp_path) as sdk:
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        denied = [e.payload async for e in task.events() if isinstance(e.payload, ev.ToolCallDenied)]
        assert [(one.by, one.reason) for one in denied] == [
            (Actor(kind="extension", id="helper"), "by a rule of mine")
        ]
        assert await problems(sdk, session) == []
    assert not (tmp_path / "ws" / "a.txt").exists()


async def test_the_first_performed_action_wins_and_later_ones_are_not_run(ext: Extensions, tmp_path: Path):
    ext.write("helper", decides(priority=50))
    ext.write("another", decides("deny"))
    ext.write("zlast", decides("deny"))
    policy = ASKS.replace('"extension:helper"', '"extension:helper", "extension:another", "extension:zlast"')
    async with extended(ext, tmp_path, policy=policy) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        await (await session.start("Go.")).result()
        await settle(sdk)
        assert actions(emitted) == [
            ("helper", "performed"),
            ("another", "not_eligible"),
            ("zlast", "not_eligible"),
        ]


async def test_a_user_who_was_faster_makes_it_already_resolved(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    source = """
import asyncio
async def handle(event, tools):
    gate = asyncio.Event()
    note((asyncio.get_running_loop(), gate))
    await gate.wait()
    return {"kind": "action_request", "action_type": "approval.decide", "payload": {"decision": "approve"}}
def register(registry): registry.on("approval.requested", handle, timeout_ms=60_000)
"""
    ext.write("helper", source)
    async with extended(ext, tmp_path) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.approve(event.payload.tool_call_id or "")
            elif event.type == "tool.call.completed":
                loop, gate = await probe.first()
                loop.call_soon_threadsafe(gate.set)
                await settle(sdk)
                assert actions(emitted) == [("helper", "already_resolved")]
        assert await problems(sdk, session) == []


async def test_a_call_that_the_event_is_not_about_must_wait_for_an_answer(ext: Extensions, tmp_path: Path):
    ext.write("helper", decides(kind="turn.completed", more='"tool_call_id": "call_none"'))
    async with extended(ext, tmp_path, [[{"text": "Hi."}]]) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        await (await session.start("Go.")).result()
        await settle(sdk)
        assert actions(emitted, "turn.completed") == [("helper", "not_eligible")]


async def test_a_call_of_another_task_is_not_answered(ext: Extensions, tmp_path: Path):
    """The event is of the first task, the call that its handler names waits in the second."""
    named = tmp_path / "named"
    os.mkfifo(named)
    source = decides(
        kind="turn.completed", more=f'"tool_call_id": __import__("pathlib").Path({str(named)!r}).read_text()'
    )
    ext.write("helper", source.replace("async def", "def").replace(", 100)", ", 100, 60_000)"))
    async with extended(ext, tmp_path, [[{"text": "Hi."}], *WRITES]) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        await (await session.start("Go.")).result()
        second = await session.start("Go on.")
        async for event in second.events():
            if isinstance(event.payload, ev.ApprovalRequested):
                call_id = event.payload.tool_call_id or ""
                await asyncio.to_thread(named.write_text, call_id)
                await settle(sdk)
                assert actions(emitted, "turn.completed") == [("helper", "not_eligible")]
                with pytest.raises(NotFound, match="of task task_other"):
                    await session.approve(call_id, task_id="task_other")
                await session.deny(call_id, "Not now.", task_id=second.id)
        await asyncio.to_thread(named.write_text, call_id)  # for the handler of the second end
        await settle(sdk)
        assert await problems(sdk, session) == []


@pytest.mark.parametrize(
    "more", ['"session_id": "ses_other"', '"task_id": "task_other"', '"project_id": "prj_other"']
)
async def test_an_action_reaches_no_further_than_its_event(ext: Extensions, tmp_path: Path, more: str):
    ext.write("helper", decides(more=more))
    await first_status(ext, tmp_path, "forbidden")


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        ('{"decision": "maybe"}', "invalid"),
        ('{"decision": "approve", "scope": "session"}', "invalid"),
        ('{"decision": "approve", "input_hash": "sha256:0"}', "conflict"),
        ('{"decision": "approve", "attempt": 7}', "conflict"),
        ("{}", "invalid"),
    ],
)
async def test_a_payload_that_does_not_fit_is_refused(
    ext: Extensions, tmp_path: Path, payload: str, status: str
):
    source = (
        "def handle(event, tools):\n"
        "    return {'kind': 'action_request', 'action_type': 'approval.decide', 'payload': "
        + payload
        + "}\n"
        "def register(registry): registry.on('approval.requested', handle)\n"
    )
    ext.write("helper", source)
    await first_status(ext, tmp_path, status)


@pytest.mark.parametrize(
    ("declared", "trust", "status"),
    [([], "enforced", "forbidden"), ([], "warn", "performed"), ([], "disabled", "performed")],
)
async def test_an_undeclared_action_is_forbidden_where_trust_is_enforced(
    ext: Extensions, tmp_path: Path, declared: list[str], trust: Any, status: str
):
    ext.write("helper", decides(), actions=declared)
    await first_status(ext, tmp_path, status, ext.options(trust=trust))


async def test_an_action_that_does_not_exist_is_invalid(ext: Extensions, tmp_path: Path):
    source = (
        "def handle(event, tools): return {'kind': 'action_request', 'action_type': 'session.delete'}\n"
        "def register(registry): registry.on('approval.requested', handle)\n"
    )
    ext.write("helper", source, actions=["session.delete"])
    await first_status(ext, tmp_path, "invalid")


async def first_status(
    ext: Extensions, tmp_path: Path, status: str, options: ExtensionOptions | None = None
) -> None:
    """The one action that is asked for has this status; then a person answers, unless it was performed."""
    async with extended(ext, tmp_path, options=options) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                await settle(sdk)
                assert actions(emitted) == [("helper", status)]
                if status != "performed":
                    await task.approve(event.payload.tool_call_id or "")
        assert await problems(sdk, session) == []


@shows("action-steer")
async def test_an_extension_steers_the_task_of_its_event_and_is_named(ext: Extensions, tmp_path: Path):
    source = """
def handle(event, tools):
    return {"kind": "action_request", "action_type": "turn.steer.create", "payload": {"message": "Be brief."}}
def register(registry): registry.on("model.input", handle)
"""
    # What is steered once the input was written is handed to the runtime; before that it would be a part of the input.
    ext.write("helper", source, events=["model.input"])
    async with extended(ext, tmp_path, [[{"text": "x"}, {"await_steer": True}]], stored=True) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        steered = [
            (event.payload.by, event.trace.client_id)
            async for event in task.events()
            if isinstance(event.payload, ev.TaskSteered)
        ]
        assert steered == [(Actor(kind="extension", id="helper"), "extension:helper")]
        await settle(sdk)
        assert actions(emitted, "model.input") == [("helper", "performed")]
        assert sdk.audit is not None
        found = [(r.action, r.who.kind, r.who.id) for r in await sdk.audit.read() if "steer" in r.action]
        assert sorted(found) == [
            ("extension.turn.steer.create", "extension", "helper"),
            ("task.steer", "extension", "helper"),
        ]
        assert await problems(sdk, session) == []


async def test_an_application_has_actions_of_its_own(ext: Extensions, tmp_path: Path):
    done: list[tuple[dict[str, Any], str]] = []

    async def page(payload: dict[str, Any], origin: Origin) -> Any:
        done.append((payload, origin.session_id))
        if payload["who"] == "nobody":
            raise Forbidden("There is nobody to page.")
        return "performed" if payload["who"] == "ann" else payload["who"]

    source = """
def asks(who):
    def handle(event, tools):
        return {"kind": "action_request", "action_type": "app.page", "payload": {"who": who}}
    return handle
def register(registry):
    for who in ("nobody", "conflict", "nonsense", "ann", "bob"):
        registry.on("turn.completed", asks(who))
"""
    ext.write("helper", source, actions=["app.page"])
    options = ext.options(actions={"app.page": page})
    async with extended(ext, tmp_path, [[{"text": "Hi."}]], options=options) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        await (await session.start("Go.")).result()
        await settle(sdk)
        statuses = [status for _, status in actions(emitted, "turn.completed")]
        assert statuses == ["forbidden", "conflict", "failed", "performed", "not_eligible"]
        assert done[-1] == ({"who": "ann"}, session.id)


async def test_a_handler_that_claims_to_have_acted_has_not(ext: Extensions, tmp_path: Path):
    source = (
        "def handle(event, tools):\n"
        "    return {'kind': 'action_result', 'action_type': 'approval.decide', 'status': 'performed'}\n"
        "def register(registry): registry.on('turn.completed', handle)\n"
    )
    ext.write("helper", source)
    async with extended(ext, tmp_path, [[{"text": "Hi."}]]) as sdk:
        emitted = Emitted(sdk)
        await (await (await session_in(sdk, tmp_path)).start("Go.")).result()
        await settle(sdk)
        (result,) = emitted.of("turn.completed")
        assert isinstance(result, HandlerError)
