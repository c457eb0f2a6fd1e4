"""Errors: every code belongs to one family, and the wire form survives the way through an exception."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, strategies as st
from tests.contract.strategies import structs

import codesdk
from codesdk.contract import errors
from codesdk.contract.errors import CodeSDKError, ErrorCode, ErrorInfo, TaskFailure, from_info

CODES = get_args(ErrorCode)
FAMILIES: dict[str, set[ErrorCode]] = {
    "InvalidRequest": {"INVALID_REQUEST", "CONTEXT_TOO_LARGE"},
    "NotFound": {"NOT_FOUND"},
    "Conflict": {"CONFLICT"},
    "Forbidden": {"FORBIDDEN", "AUTH_REQUIRED", "AUTH_FAILED"},
    "Busy": {"SESSION_BUSY", "QUEUE_FULL", "RATE_LIMITED", "OVERLOADED"},
    "StorageFailure": {"STORAGE_FAILED"},
    "SandboxUnavailable": {"SANDBOX_UNAVAILABLE"},
    "TaskFailure": {
        "CONTENT_FILTERED",
        "BUDGET_EXCEEDED",
        "TIMEOUT",
        "RUNTIME_UNAVAILABLE",
        "RUNTIME_CRASHED",
        "RUNTIME_PROTOCOL",
        "MODEL_ERROR",
        "TOOL_FAILED",
        "INTERRUPTED",
        "INTERNAL",
    },
}
CLASSES = [getattr(errors, name) for name in FAMILIES]


def test_every_code_belongs_to_exactly_one_family():
    listed = sorted(code for codes in FAMILIES.values() for code in codes)
    assert listed == sorted(CODES)
    for family, codes in FAMILIES.items():
        for code in codes:
            error = from_info(ErrorInfo(code=code, message="m", retryable=False))
            assert (code, type(error).__name__) == (code, family)


def test_the_families_are_the_only_children_of_the_root_and_have_none_themselves():
    ours = [child for parent in (CodeSDKError, *CLASSES) for child in parent.__subclasses__()]
    assert [child for child in ours if child.__module__.startswith("codesdk.contract")] == CLASSES


def test_the_tree_in_the_docstring_names_every_family():
    assert set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) == set(FAMILIES)


@pytest.mark.parametrize("family", CLASSES)
def test_a_familys_own_code_leads_back_to_it(family):
    error = from_info(family("what happened").info())
    assert type(error) is family


def test_only_busy_can_be_retried_unless_the_error_says_otherwise():
    assert [family.__name__ for family in CLASSES if family("m").retryable] == ["Busy"]
    assert TaskFailure("m", retryable=True).info().retryable is True
    assert errors.Busy("m", retryable=False).info().retryable is False


@given(structs(ErrorInfo))
def test_an_error_keeps_everything_but_raw_on_its_way_through_an_exception(info):
    error = from_info(info)
    assert error.info() == ErrorInfo(
        code=info.code,
        message=info.message,
        retryable=info.retryable,
        runtime=info.runtime,
        details=info.details,
    )
    assert str(error) == info.message


@given(st.sampled_from(CODES))
def test_an_exception_of_any_code_can_be_caught_as_the_root(code):
    with pytest.raises(CodeSDKError):
        raise from_info(ErrorInfo(code=code, message="m", retryable=True))


def _messages() -> list[tuple[str, ast.expr | None]]:
    """Return the message of every error that the package makes, with its place."""
    makers = {*FAMILIES, "CodeSDKError", "ErrorInfo"}
    found: list[tuple[str, ast.expr | None]] = []
    for path in sorted(Path(codesdk.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                named = {keyword.arg: keyword.value for keyword in node.keywords}
                message = node.args[0] if node.args else named.get("message")
                found.append((f"{path.name}:{node.lineno}", message))
    return found


@pytest.mark.slow
def test_no_error_is_made_without_a_message():
    made = _messages()
    assert len(made) > 20
    silent = [
        place
        for place, message in made
        if message is None or (isinstance(message, ast.Constant) and not str(message.value).strip())
    ]
    assert silent == []
