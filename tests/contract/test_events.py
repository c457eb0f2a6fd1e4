"""The list of event types, the names that others build on, and what importing the contract must not load."""

import importlib
import json
import pkgutil
import subprocess
import sys
from typing import get_args

import msgspec
import pytest

import codesdk.contract
from codesdk.contract import events
from codesdk.contract.events import EVENT_TYPES, EVENTS, TERMINAL_TYPES, TYPE_OF
from codesdk.contract.runtime import DraftPayload
from codesdk.contract.tools import Record, ToolIdentity

MODULES = [f"codesdk.contract.{module.name}" for module in pkgutil.iter_modules(codesdk.contract.__path__)]
STABLE_NAMES = {
    "canonical": ["CanonicalError", "canonical", "content_hash", "hash_json"],
    "access": ["AuthStatus", "Availability", "LoginDialog", "LoginOutcome", "LoginPrompt", "ProviderKeys"],
    "capabilities": ["Capabilities", "Isolation"],
    "codec": ["UPCASTERS", "decode", "encode", "upcast"],
    "errors": [
        "Busy",
        "CodeSDKError",
        "Conflict",
        "ErrorCode",
        "ErrorInfo",
        "Forbidden",
        "InvalidRequest",
        "NotFound",
        "StorageFailure",
        "TaskFailure",
        "from_info",
    ],
    "events": [
        "CONTRACT_VERSION",
        "EVENT_OF",
        "EVENT_TYPES",
        "EVENTS",
        "Event",
        "KnownEvent",
        "RuntimeInfo",
        "SCHEMA_VERSION",
        "TERMINAL_TYPES",
        "TYPE_OF",
        "TaskEndEvent",
        "Trace",
        "UnknownEvent",
        "UsageTotals",
    ],
    "ids": ["artifact_id", "is_id", "is_task_id", "ulid"],
    "messages": [
        "ArtifactBlock",
        "ArtifactRef",
        "Code",
        "ContentBlock",
        "Message",
        "Reasoning",
        "Text",
        "ToolResult",
        "ToolUse",
        "text_of",
        "user",
    ],
    "runtime": [
        "Draft",
        "Failed",
        "Finished",
        "Host",
        "Identified",
        "Runtime",
        "RuntimeTask",
        "TaskInput",
        "ToolAnnouncement",
        "ToolReply",
    ],
    "schema": ["event_schemas", "schema_files"],
    "settings": ["Limits", "SessionConfig", "SessionSettings", "SettingsChange"],
    "tools": ["Actor", "Evaluation", "PolicySnapshot", "SandboxSummary", "ToolIdentity", "ToolSpec"],
}
FORBIDDEN = ["asyncio", "click", "rich", "select", "selectors", "socket", "sqlite3", "ssl", "subprocess"]
FORBIDDEN += ["threading", "uvloop", "yaml"]


def test_each_type_has_one_payload_and_each_payload_one_type():
    assert {name: TYPE_OF[payload] for name, payload in EVENT_TYPES.items()} == {n: n for n in EVENT_TYPES}
    assert len(TYPE_OF) == len(EVENT_TYPES)


def test_the_tag_that_is_stored_is_the_type_that_is_read():
    assert [event.__struct_config__.tag for event in EVENTS] == [event.type for event in EVENTS]


def test_every_type_that_documents_name_is_in_the_list():
    assert list(EVENT_TYPES) == [
        "session.created",
        "session.resumed",
        "session.closed",
        "session.recovered",
        "session.not_resumed",
        "session.clock_changed",
        "session.settings_changed",
        "session.compacted",
        "transcript.supplemented",
        "suggest_request.requested",
        "suggest_request.answered",
        "task.queued",
        "task.started",
        "task.steered",
        "task.stop_requested",
        "model.input",
        "runtime.request.started",
        "runtime.request.completed",
        "model.output.delta",
        "model.output.retracted",
        "model.output.completed",
        "tool.call.requested",
        "tool.call.announced",
        "tool.call.policy_evaluated",
        "approval.requested",
        "approval.answered",
        "approval.carried",
        "grant.revoked",
        "tool.call.approved",
        "tool.call.denied",
        "tool.call.started",
        "tool.output.delta",
        "tool.output.completed",
        "tool.call.completed",
        "files.undone",
        "usage.reported",
        "runtime.notice",
        "artifact.created",
        "task.completed",
        "task.failed",
        "task.stopped",
    ]


def test_the_terminal_types_are_types():
    assert TERMINAL_TYPES < set(EVENT_TYPES)


def test_a_payload_is_a_frozen_record():
    for payload in EVENT_TYPES.values():
        assert issubclass(payload, Record)
        assert payload.__struct_config__.frozen


def test_every_tool_event_carries_the_identity_of_its_attempt():
    tool_events = {name for name, payload in EVENT_TYPES.items() if issubclass(payload, ToolIdentity)}
    assert tool_events == {name for name in EVENT_TYPES if name.startswith("tool.")}


def test_a_record_leaves_out_what_is_not_known():
    trace = events.Trace(session_id="ses_1")
    assert msgspec.json.encode(trace) == b'{"session_id":"ses_1"}'


def test_usage_totals_show_every_count_even_when_it_is_zero():
    assert json.loads(msgspec.json.encode(events.UsageTotals())) == {
        "input": 0,
        "output": 0,
        "cache_read": 0,
        "cache_write": 0,
        "reasoning": 0,
        "cost_usd": None,
    }


def test_a_runtime_may_draft_no_decision_and_no_end():
    drafts = {TYPE_OF[payload] for payload in get_args(DraftPayload)}
    assert drafts == {
        "model.output.completed",
        "model.output.delta",
        "model.output.retracted",
        "runtime.notice",
        "runtime.request.completed",
        "runtime.request.started",
        "usage.reported",
    }


@pytest.mark.parametrize("module", STABLE_NAMES)
def test_names_that_others_build_on_are_there(module):
    found = importlib.import_module(f"codesdk.contract.{module}")
    assert [name for name in STABLE_NAMES[module] if not hasattr(found, name)] == []


def test_importing_the_contract_loads_nothing_that_does_io_or_draws():
    program = "import sys\n" + "".join(f"import {name}\n" for name in MODULES)
    program += "print(*sorted(name for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert set(MODULES) <= loaded
    assert sorted(loaded & set(FORBIDDEN)) == []
    layers = {name.split(".")[1] for name in loaded if name.startswith("codesdk.")}
    assert layers == {"contract", "doors"}
