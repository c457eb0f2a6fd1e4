"""What document 001 says, sentence by sentence, and the marks of the tests that show it.

`test_requirements.py` compares both ways: every sentence is shown by a test, and no test shows a sentence
that is not here.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def shows(*ids: str) -> Callable[[F], F]:
    """Say which requirements a test shows. Read from the source by `test_requirements.py`."""
    return lambda test: test


REQUIREMENTS = {
    "core-api": "CORE_API_VERSION is 1.",
    "neutral": "The SDK is provider-neutral: the same handler serves sessions of every runtime.",
    "adapters": "What is particular to a provider is in its runtime's adapter, not in the SDK.",
    "profile": "A profile has an id, a version and the core API version.",
    "compat-core": "Compatibility names core_api_version or core_api_version_range.",
    "compat-profiles": "Compatibility names profiles by name, version and version range.",
    "event": "An event has a type, a payload, and optionally emitted_at and correlation_id.",
    "tools-enqueue": "Tools have enqueue_job(input).",
    "tools-logger": "Tools have a logger.",
    "tools-settings": "Tools have get_session_settings(session_id).",
    "tools-setting": "Tools have get_session_setting(session_id, key).",
    "registry": "The registry has on(event_type, handler, priority, timeout_ms).",
    "envelopes": "The output of emit is normalized to four kinds of envelopes.",
    "enqueue-result": "enqueue_result says enqueued or already_queued, with the job's identity and state.",
    "action-result": "action_result has the action type and one of seven statuses.",
    "action-request": "Handlers do not execute actions: they return an action_request, and the runtime executes it.",
    "handler-result": "handler_result is what changes nothing.",
    "handler-error": "handler_error is what a handler raised, or that it took too long.",
    "to-emit-result": "to_emit_result(module_name, event_type, raw) makes an envelope of anything.",
    "to-handler-error": "to_handler_error(module_name, event_type, error) makes an envelope of an error.",
    "no-scanning": "After that nobody looks for what something might be: it is one of the four, by its own kind alone.",
    "enqueue-winner": "select_enqueue_winner(results, strategy) picks the job that counts.",
    "first-action": "select_first_successful_action(results): the first performed one is the winner.",
    "classify-reconciled": "already_resolved, not_eligible and conflict classify as reconciled.",
    "classify-failed": "failed, forbidden and invalid classify as failed.",
    "plan": "select_action_execution_plan(results) gives the winner, the reconciled and the failed ones.",
    "order-priority": "Handlers are called by priority, ascending.",
    "order-module": "Handlers of one priority are called by module name, ascending.",
    "order-index": "Handlers of one module are called by registration index, ascending.",
    "default-priority": "The default priority is 100.",
    "event-file-change": "file_change.approval_requested is emitted.",
    "event-turn": "turn.completed is emitted.",
    "event-suggest": "suggest_request.requested is emitted.",
    "event-notification": "app_server.<normalized_method> is emitted for notifications of an app server.",
    "event-request": "app_server.request.<normalized_method> is emitted for requests of an app server.",
    "normalize": "Methods are split on `/`, segments become snake_case, and are joined with `.`.",
    "signal-envelope": "Signals of an app server have the shared envelope.",
    "signal-session": "Its session is id, title and project_id, or null: here a signal always has a session.",
    "signal-request-id": "It has a request_id if it is a request, and only then.",
    "action-approval": "approval.decide is an action.",
    "action-steer": "turn.steer.create is an action.",
    "action-transcript": "transcript.upsert is an action.",
    "action-queue": "queue.enqueue is an action.",
}
