"""The pure part of the contract: envelopes, their normalization, and who wins."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.extensions.requirements import shows

from codesdk.extensions import (
    CORE_API_VERSION,
    ActionRequest,
    ActionResult,
    AgentRuntimeEvent,
    AgentRuntimeProfile,
    EnqueueResult,
    HandlerError,
    HandlerResult,
    Job,
    classify_reconciled_action_status,
    normalize_method,
    select_action_execution_plan,
    select_enqueue_winner,
    select_first_successful_action,
    to_emit_result,
    to_handler_error,
)
from codesdk.extensions.outcomes import HandlerTimeout, is_action_request, to_action_request

STATUSES = ["performed", "already_resolved", "not_eligible", "conflict", "forbidden", "invalid", "failed"]


def action(status: Any, module: str = "m") -> ActionResult:
    return ActionResult(module_name=module, event_type="e", action_type="approval.decide", status=status)


def queued(status: Any, job: str) -> EnqueueResult:
    return EnqueueResult(
        module_name="m", event_type="e", status=status, job=Job(id=job, type="t", state="queued")
    )


@shows("core-api", "profile")
def test_the_version_of_the_core_api_is_one():
    profile = AgentRuntimeProfile(runtime_profile_id="codex", runtime_profile_version="1.2.3")
    assert CORE_API_VERSION == 1
    assert (profile.runtime_profile_id, profile.runtime_profile_version) == ("codex", "1.2.3")
    assert profile.core_api_version == 1


@shows("event")
def test_an_event_has_a_type_and_a_payload_and_may_have_more():
    assert AgentRuntimeEvent(type="a", payload={}) == AgentRuntimeEvent(
        type="a", payload={}, emitted_at=None, correlation_id=None
    )


@pytest.mark.parametrize("raw", [None, 5, "text", ["a"], {"a": 1}, {"kind": "other"}, {"kind": 7}])
@shows("envelopes", "to-emit-result", "handler-result")
def test_plain_data_becomes_a_handler_result(raw: Any):
    assert to_emit_result("m", "e", raw) == HandlerResult(module_name="m", event_type="e", value=raw)


ENVELOPES = [
    {"kind": "action_result", "action_type": "a", "status": "performed"},
    {"kind": "handler_error", "message": "no"},
    {"kind": "action_request", "action_type": "approval.decide"},
]


@shows("no-scanning")
@given(
    st.sampled_from(ENVELOPES), st.lists(st.sampled_from(["list", "result", "value", "output"]), min_size=1)
)
def test_an_envelope_inside_something_else_is_data(envelope: dict[str, Any], around: list[str]):
    """What something is says its own `kind` and nothing within it."""
    raw: Any = envelope
    for key in around:
        raw = [raw] if key == "list" else {key: raw}
    assert to_emit_result("m", "e", raw) == HandlerResult(module_name="m", event_type="e", value=raw)
    assert not is_action_request(raw)
    without = {key: value for key, value in envelope.items() if key != "kind"}
    assert isinstance(to_emit_result("m", "e", without), HandlerResult)


@shows("enqueue-result", "action-result")
def test_an_envelope_stays_one_in_the_name_of_whoever_returned_it():
    job = {"id": "job_1", "type": "t", "state": "queued", "project_id": "p"}
    said = {"kind": "enqueue_result", "module_name": "somebody else", "status": "already_queued", "job": job}
    assert to_emit_result("m", "e", said) == EnqueueResult(
        module_name="m",
        event_type="e",
        status="already_queued",
        job=Job(id="job_1", type="t", state="queued", project_id="p"),
    )
    assert [to_emit_result("m", "e", action(status, "x")) for status in STATUSES] == [
        action(status) for status in STATUSES
    ]


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "enqueue_result", "status": "enqueued"},
        {"kind": "action_result", "action_type": "a", "status": "won"},
        {"kind": "handler_error"},
        object(),
        {1j: 2},
    ],
)
def test_what_is_no_envelope_and_no_json_becomes_a_handler_error(raw: Any):
    result = to_emit_result("m", "e", raw)
    assert isinstance(result, HandlerError)
    assert (result.error, result.module_name, result.event_type) == ("error", "m", "e")


@shows("to-handler-error", "handler-error")
def test_errors_and_timeouts_become_handler_errors():
    raised = to_handler_error("m", "e", KeyError("x"))
    assert raised == HandlerError(module_name="m", event_type="e", message="KeyError: 'x'")
    late = to_handler_error("m", "e", HandlerTimeout("It took longer than 5 ms."))
    assert (late.error, late.message) == ("timeout", "It took longer than 5 ms.")
    assert to_handler_error("m", "e", "words").message == "words"
    assert len(to_handler_error("m", "e", RuntimeError("x" * 100_000)).message) == 2000


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "action_request"},
        {"kind": "action_request", "action_type": ""},
        {"kind": "action_request", "action_type": 5},
        {"kind": "action_request", "action_type": "a", "payload": []},
        {"kind": "action_request", "action_type": "a", "idempotency_key": 5},
    ],
)
def test_a_request_that_is_not_valid_is_refused(raw: Any):
    with pytest.raises(ValueError, match="action request"):
        to_action_request(raw)


def test_a_request_is_read_from_plain_data():
    raw = {"kind": "action_request", "action_type": "a", "payload": {"b": 1}, "request_id": "r"}
    assert to_action_request(raw) == ActionRequest(action_type="a", payload={"b": 1}, request_id="r")


@shows("enqueue-winner")
def test_the_job_that_counts_is_the_new_one_or_the_old_one():
    old, older, new, newer = (
        queued("already_queued", "1"),
        queued("already_queued", "2"),
        queued("enqueued", "3"),
        queued("enqueued", "4"),
    )
    all_of_them = [action("performed"), old, older, new, newer]
    assert select_enqueue_winner(all_of_them) is new
    assert select_enqueue_winner(all_of_them, "prefer_existing") is old
    assert select_enqueue_winner([old, older], "prefer_enqueued") is old
    assert select_enqueue_winner([new, newer], "prefer_existing") is new
    assert select_enqueue_winner([action("performed")]) is None


@shows("classify-reconciled", "classify-failed")
def test_each_status_has_its_standing():
    assert {status: classify_reconciled_action_status(status) for status in STATUSES} == {  # pyright: ignore[reportArgumentType]
        "performed": "winner",
        "already_resolved": "reconciled",
        "not_eligible": "reconciled",
        "conflict": "reconciled",
        "forbidden": "failed",
        "invalid": "failed",
        "failed": "failed",
    }


@given(st.lists(st.sampled_from(STATUSES)))
@shows("first-action", "plan")
def test_the_first_performed_action_wins_and_all_others_are_accounted_for(statuses: list[str]):
    results = [action(status, str(place)) for place, status in enumerate(statuses)]
    plan = select_action_execution_plan(results)
    assert plan.winner == select_first_successful_action(results)
    first = next((one for one in results if one.status == "performed"), None)
    assert plan.winner is first
    failed = [one for one in results if one.status in ("failed", "forbidden", "invalid")]
    assert plan.failed == failed
    assert plan.reconciled == [one for one in results if one is not first and one not in failed]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("turn/started", "turn.started"),
        ("thread/tokenUsage/updated", "thread.token_usage.updated"),
        ("item/commandExecution/requestApproval", "item.command_execution.request_approval"),
        ("account/rateLimits/updated", "account.rate_limits.updated"),
        ("ItemStarted", "item_started"),
        ("mcpServer/HTTPStatus", "mcp_server.http_status"),
        ("error", "error"),
    ],
)
@shows("normalize")
def test_methods_of_an_app_server_become_names_of_events(method: str, name: str):
    assert normalize_method(method) == name
