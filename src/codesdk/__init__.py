"""CodeSDK: one stable contract over every coding agent.

Start with `CodeSDK.open`. The names below are the public ones; they are loaded when first used.
"""

from codesdk.doors import TYPE_CHECKING, open_door

__version__ = "0.1.0"

if TYPE_CHECKING:
    from codesdk.client import CodeSDKClient as CodeSDKClient, SyncClient as SyncClient
    from codesdk.contract.capabilities import Capabilities as Capabilities
    from codesdk.contract.errors import (
        Busy as Busy,
        CodeSDKError as CodeSDKError,
        Conflict as Conflict,
        ErrorInfo as ErrorInfo,
        Forbidden as Forbidden,
        InvalidRequest as InvalidRequest,
        NotFound as NotFound,
        SandboxUnavailable as SandboxUnavailable,
        StorageFailure as StorageFailure,
        TaskFailure as TaskFailure,
    )
    from codesdk.contract.events import Event as Event, UsageTotals as UsageTotals
    from codesdk.contract.messages import (
        ArtifactBlock as ArtifactBlock,
        ArtifactRef as ArtifactRef,
        Code as Code,
        Message as Message,
        Reasoning as Reasoning,
        Text as Text,
        ToolResult as ToolResult,
        ToolUse as ToolUse,
        user as user,
    )
    from codesdk.contract.records import (
        ApprovalRow as ApprovalRow,
        SessionRow as SessionRow,
        TaskRow as TaskRow,
    )
    from codesdk.contract.retention import Retention as Retention
    from codesdk.contract.runtime import Runtime as Runtime, RuntimeTask as RuntimeTask
    from codesdk.contract.settings import (
        Budget as Budget,
        Budgets as Budgets,
        Limits as Limits,
        SessionSettings as SessionSettings,
    )
    from codesdk.engine import Permits as Permits
    from codesdk.extensions import ExtensionOptions as ExtensionOptions
    from codesdk.gateway import Provider as Provider, load_cassette as load_cassette
    from codesdk.handles import Session as Session, Task as Task, TaskResult as TaskResult
    from codesdk.policy import load_policy as load_policy
    from codesdk.sandbox import SandboxLimits as SandboxLimits
    from codesdk.script import load_script as load_script, parse_script as parse_script
    from codesdk.sdk import CodeSDK as CodeSDK
    from codesdk.tools import (
        ExecOptions as ExecOptions,
        FetchOptions as FetchOptions,
        HttpServer as HttpServer,
        StdioServer as StdioServer,
        ToolContext as ToolContext,
        ToolError as ToolError,
        ToolRegistry as ToolRegistry,
        builtin_registry as builtin_registry,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
