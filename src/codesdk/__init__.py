"""CodeSDK: one stable contract over every coding agent.

Start with `CodeSDK.open`. The names below are the public ones; they are loaded when first used.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from codesdk.contract.capabilities import Capabilities
    from codesdk.contract.errors import (
        Busy,
        CodeSDKError,
        Conflict,
        ErrorInfo,
        Forbidden,
        InvalidRequest,
        NotFound,
        SandboxUnavailable,
        StorageFailure,
        TaskFailure,
    )
    from codesdk.contract.events import Event, UsageTotals
    from codesdk.contract.messages import (
        ArtifactBlock,
        ArtifactRef,
        Code,
        Message,
        Reasoning,
        Text,
        ToolResult,
        ToolUse,
        user,
    )
    from codesdk.contract.records import ApprovalRow, SessionRow, TaskRow
    from codesdk.contract.runtime import Runtime, RuntimeTask
    from codesdk.contract.settings import Budget, Budgets, Limits, SessionSettings
    from codesdk.handles import Session, Task, TaskResult
    from codesdk.policy import load_policy
    from codesdk.sdk import CodeSDK
    from codesdk.tools import ToolContext, ToolError, ToolRegistry, builtin_registry

_HOMES = {
    "codesdk.contract.capabilities": ("Capabilities",),
    "codesdk.contract.errors": (
        "Busy",
        "CodeSDKError",
        "Conflict",
        "ErrorInfo",
        "Forbidden",
        "InvalidRequest",
        "NotFound",
        "SandboxUnavailable",
        "StorageFailure",
        "TaskFailure",
    ),
    "codesdk.contract.events": ("Event", "UsageTotals"),
    "codesdk.contract.messages": (
        "ArtifactBlock",
        "ArtifactRef",
        "Code",
        "Message",
        "Reasoning",
        "Text",
        "ToolResult",
        "ToolUse",
        "user",
    ),
    "codesdk.contract.records": ("ApprovalRow", "SessionRow", "TaskRow"),
    "codesdk.contract.runtime": ("Runtime", "RuntimeTask"),
    "codesdk.contract.settings": ("Budget", "Budgets", "Limits", "SessionSettings"),
    "codesdk.policy.load": ("load_policy",),
    "codesdk.handles": ("Session", "Task", "TaskResult"),
    "codesdk.sdk": ("CodeSDK",),
    "codesdk.tools": ("ToolContext", "ToolError", "ToolRegistry", "builtin_registry"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ApprovalRow",
    "ArtifactBlock",
    "ArtifactRef",
    "Budget",
    "Budgets",
    "Busy",
    "Capabilities",
    "Code",
    "CodeSDK",
    "CodeSDKError",
    "Conflict",
    "ErrorInfo",
    "Event",
    "Forbidden",
    "InvalidRequest",
    "Limits",
    "Message",
    "NotFound",
    "Reasoning",
    "Runtime",
    "RuntimeTask",
    "SandboxUnavailable",
    "Session",
    "SessionRow",
    "SessionSettings",
    "StorageFailure",
    "Task",
    "TaskFailure",
    "TaskResult",
    "TaskRow",
    "Text",
    "ToolContext",
    "ToolError",
    "ToolRegistry",
    "ToolResult",
    "ToolUse",
    "UsageTotals",
    "builtin_registry",
    "load_policy",
    "user",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first asked for."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'codesdk' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
