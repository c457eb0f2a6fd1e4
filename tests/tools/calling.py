"""The built-in tools, called as the engine calls them."""

from pathlib import Path
from typing import Any

from codesdk.contract.canonical import content_hash
from codesdk.contract.editor import EditorFiles
from codesdk.contract.ports import FileChange, Kept, PreparedCall, ToolInvocation, ToolRun, ToolRunner
from codesdk.contract.tools import SandboxSummary
from codesdk.contract.workspace import Workspace
from codesdk.tools import builtin_registry

REGISTRY = builtin_registry()


def call(name: str, workspace: Path, arguments: Any, editor: EditorFiles | None = None) -> ToolInvocation:
    """Return a call of a tool."""
    return ToolInvocation(
        session_id="ses_1",
        task_id="task_1",
        tool_call_id="call_1",
        attempt=1,
        name=name,
        input=arguments,
        workspace=Workspace(str(workspace)),
        editor=editor,
    )


async def use(workspace: Path, name: str, **arguments: Any) -> ToolRun:
    """Run a built-in tool."""
    return await REGISTRY.run(call(name, workspace, arguments), lambda *_: None)


async def use_for(editor: EditorFiles, workspace: Path, name: str, **arguments: Any) -> ToolRun:
    """Run a built-in tool in a task that an editor started."""
    return await REGISTRY.run(call(name, workspace, arguments, editor), lambda *_: None)


def ready(tools: ToolRunner, name: str, arguments: Any) -> PreparedCall:
    """Return a tool with an input that it takes."""
    prepared = tools.prepare(name, arguments)
    assert isinstance(prepared, PreparedCall), prepared
    return prepared


def where(tools: ToolRunner, name: str, arguments: Any) -> tuple[str, SandboxSummary]:
    """Return where and how a tool would run."""
    prepared = ready(tools, name, arguments)
    return prepared.execution_env, prepared.sandbox


def error(message: str) -> ToolRun:
    """Return the run of a tool that could not do it."""
    return ToolRun(result=message, is_error=True)


def changed(
    path: str, diff: str, before: bytes | None, after: bytes | None, *, mode: int = 0o644, made: int = 0
) -> FileChange:
    """Return a change as a tool reports it."""
    return FileChange(
        path=path,
        diff=diff,
        kept=Kept(
            path=path,
            before=before,
            before_mode=None if before is None else mode,
            after_hash=None if after is None else content_hash(after),
            after_mode=None if after is None else mode,
            made_folders=made,
        ),
    )
