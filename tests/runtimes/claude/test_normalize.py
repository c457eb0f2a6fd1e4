"""What claude's frames mean: recorded ones, mutilated ones, and the pure parts around them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.claude.goldens import CASES, TOOLS, meanings, read

from codesdk.contract.runtime import Draft, Failed
from codesdk.runtimes.claude.errors import error_of
from codesdk.runtimes.claude.login import login_variables
from codesdk.runtimes.claude.normalize import ClaudeState, normalize
from codesdk.runtimes.claude.options import (
    PERMISSIONS,
    TOOL_TIMEOUT_MS,
    Launch,
    command,
    key_variables,
    own_variables,
)

URL = "http://127.0.0.1:5/m/0123456789abcdef0123456789abcdef/mcp"


@pytest.mark.parametrize("case", CASES)
def test_recorded_frames_mean_what_they_meant(case: str) -> None:
    raw = read(case, "raw.jsonl")
    before = copy.deepcopy(raw)
    assert meanings(raw, CASES[case]) == read(case, "events.jsonl")
    assert raw == before


def test_what_is_drafted_carries_its_frame() -> None:
    for case in CASES:
        state = ClaudeState(TOOLS)
        for line in read(case, "raw.jsonl"):
            for item in normalize(state, line) if "said" not in line else []:
                if isinstance(item, Draft) and not hasattr(item.payload, "source"):
                    assert item.raw is line


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_a_frame_with_a_part_missing_or_of_another_kind_never_raises(case: str) -> None:
    raw = [line for line in read(case, "raw.jsonl") if "said" not in line]
    for place, frame in enumerate(raw):
        for broken in _broken(frame):
            state = ClaudeState(TOOLS)
            for line in [*raw[max(0, place - 6) : place], broken, *raw[place + 1 : place + 3]]:
                normalize(state, line)


def _broken(value: Any, depth: int = 3) -> list[Any]:
    """Return a frame without each of its parts, and with each replaced by something else."""
    if not isinstance(value, dict) or depth == 0:
        return [None, 7, "x", [], {}, [None]]
    found: list[Any] = []
    for name, inner in value.items():
        found.append({key: kept for key, kept in value.items() if key != name})
        found += [{**value, name: other} for other in _broken(inner, depth - 1)]
    return found


def test_tools_that_cannot_be_reached_end_the_task() -> None:
    frame = {
        "type": "system",
        "subtype": "init",
        "session_id": "s",
        "mcp_servers": [{"name": "codesdk", "status": "failed"}],
    }
    [_, failed] = normalize(ClaudeState(TOOLS), frame)
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.retryable) == ("RUNTIME_PROTOCOL", True)


@pytest.mark.parametrize(
    ("result", "reason", "expected"),
    [
        ({"api_error_status": 404, "terminal_reason": "api_error"}, None, ("MODEL_ERROR", False)),
        ({"api_error_status": 413}, None, ("CONTEXT_TOO_LARGE", False)),
        ({"terminal_reason": "api_error"}, "unknown", ("MODEL_ERROR", True)),
        ({"terminal_reason": "api_error"}, "authentication_failed", ("AUTH_REQUIRED", False)),
        ({"subtype": "error_during_execution", "errors": ["it broke"]}, None, ("RUNTIME_CRASHED", True)),
    ],
)
def test_an_error_has_a_code(result: dict[str, Any], reason: str | None, expected: tuple[str, bool]) -> None:
    error = error_of(result, reason)
    assert (error.code, error.retryable) == expected


# --- how it is started ----------------------------------------------------------------------------------------


def test_the_command_line_locks_claude_down_and_holds_no_token() -> None:
    launch = Launch(model="m", system_prompt="Be brief.", effort="low", permission_mode="yolo")
    argv = command("claude", launch, URL, Path("/p/system.txt"), "--session-id=1")
    servers = argv[argv.index("--mcp-config") + 1]
    assert argv == [
        *("claude", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json"),
        *("--include-partial-messages", "--permission-prompt-tool", "stdio", "--permission-mode", "manual"),
        *("--tools", "", "--strict-mcp-config", "--setting-sources=", "--disable-slash-commands"),
        *("--mcp-config", servers, "--system-prompt-file", "/p/system.txt"),
        *("--system-prompt-snapshot", "off", "--model", "m", "--effort", "low", "--session-id=1"),
    ]
    assert json.loads(servers)["mcpServers"] == {
        "codesdk": {
            "type": "http",
            "url": "http://127.0.0.1:5/mcp",
            "headers": {"Authorization": "Bearer ${CODESDK_MCP_TOKEN}"},
            "timeout": TOOL_TIMEOUT_MS,
        }
    }
    assert TOOL_TIMEOUT_MS > 24 * 3600 * 1000
    assert PERMISSIONS == {"ask": "manual", "auto": "manual", "yolo": "manual"}


def test_claude_has_a_word_in_place_of_a_key_or_a_login_and_never_both() -> None:
    address = "http://127.0.0.1:1/t"
    keyed = own_variables(Path("/c"), URL, key_variables(address), max_retries=3)
    assert (keyed["ANTHROPIC_API_KEY"], keyed["ANTHROPIC_BASE_URL"]) == ("held-by-the-gateway", address)
    assert keyed["CODESDK_MCP_TOKEN"] == "0123456789abcdef0123456789abcdef"
    logged_in = own_variables(Path("/c"), URL, login_variables(Path("/l")), max_retries=3)
    assert logged_in["CLAUDE_SECURESTORAGE_CONFIG_DIR"] == "/l"
    assert {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"}.isdisjoint(logged_in)
    assert "CLAUDE_SECURESTORAGE_CONFIG_DIR" not in keyed
