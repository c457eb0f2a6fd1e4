"""The four tools that every session has: `read`, `write`, `edit` and `bash`.

On the same code for files and processes as the owned tools: files are opened beneath the session's directory and
changed atomically, commands run in a sandbox backend, which for `host` is none.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import ToolRun
from codesdk.contract.tools import OutputStream
from codesdk.contract.workspace import Workspace
from codesdk.minicode.config.environment import KEYS
from codesdk.minicode.config.schema import SandboxSettings, ToolLimits
from codesdk.minicode.tools.define import Tool, ToolContext, define_tool
from codesdk.minicode.types import ToolOutput
from codesdk.sandbox import Command, PathRefused, Sandbox, SandboxLimits, identify, open_configured
from codesdk.tools import edit_file, read_file, run_command, write_file

_MARGIN_MS = (
    30_000  # after its time is up, a command is killed and awaited; only then would the executor give up
)
FilePath = Annotated[
    str, Meta(min_length=1, description="The file: relative to the working directory, or absolute inside it.")
]


def open_tool_sandbox(settings: SandboxSettings) -> Sandbox:
    """Return the sandbox that is configured. Raise `SandboxUnavailable` if it is not installed."""
    return open_configured(settings.backend, {"image": settings.image} if settings.backend == "oci" else {})


def find_workspace(cwd: str | os.PathLike[str]) -> Workspace:
    """Return the directory that a session works in. Raise `InvalidRequest` if it is not there."""
    path = os.path.realpath(cwd)
    try:
        return identify(Workspace(path))
    except PathRefused as error:
        raise InvalidRequest(f"{path}: {error}. Name a directory that is there as cwd.") from None


def builtin_tools(
    workspace: Workspace,
    *,
    limits: ToolLimits,
    sandbox: Sandbox,
    settings: SandboxSettings,
    env: Mapping[str, str],
    artifacts_dir: str | None = None,
) -> list[Tool]:
    """Return the tools of a session. `env` is for commands on the host; variables with keys are left out of it.

    `artifacts_dir` is where the session's own artifacts are: `read` can look at them, too.
    """
    files = _file_tools(workspace, limits, artifacts_dir)
    return [*files, _bash_tool(workspace, limits, sandbox, settings, env)]


def _file_tools(workspace: Workspace, limits: ToolLimits, artifacts_dir: str | None) -> list[Tool]:
    @define_tool
    async def read(
        file_path: FilePath,
        offset: Annotated[int, Meta(ge=1, description="The first line to show, counted from 1.")] = 1,
        limit: Annotated[int, Meta(ge=1, le=10_000, description="How many lines to show at most.")] = 2_000,
    ) -> ToolOutput:
        """Read a text file. Lines come with their numbers, which are not part of the file."""
        place, path = workspace, _beneath(workspace.path, file_path)
        if artifacts_dir is not None and path.startswith("/"):
            place, path = _artifact(artifacts_dir, path) or (workspace, path)
        # Some room for the note that there is more.
        text = await read_file(place, path, offset, limit, limits.max_shown_chars - 500)
        return ToolOutput(
            ok=True, output_message=text, details={"path": path, "offset": offset, "limit": limit}
        )

    @define_tool
    async def write(
        file_path: FilePath,
        content: Annotated[str, Meta(description="The whole text of the file. May be empty.")],
    ) -> ToolOutput:
        """Create a text file, with the directories it needs, or replace a whole one.

        To change a part of a file use edit.
        """
        return _changed(await write_file(workspace, _beneath(workspace.path, file_path), content))

    @define_tool
    async def edit(
        file_path: FilePath,
        old_text: Annotated[
            str,
            Meta(
                min_length=1,
                description="The text to replace, exactly as it is in the file. It must be there once.",
            ),
        ],
        new_text: Annotated[str, Meta(description="The text to put in its place. May be empty.")],
    ) -> ToolOutput:
        """Replace a text that occurs exactly once in a file. Include enough lines around it."""
        return _changed(await edit_file(workspace, _beneath(workspace.path, file_path), old_text, new_text))

    return [read, write, edit]


def _bash_tool(
    workspace: Workspace,
    limits: ToolLimits,
    sandbox: Sandbox,
    settings: SandboxSettings,
    env: Mapping[str, str],
) -> Tool:
    on_host = settings.backend == "host"
    given = {name: value for name, value in env.items() if name not in KEYS} if on_host else {}

    @define_tool(timeout_ms=limits.max_timeout_ms + _MARGIN_MS)
    async def bash(
        command: Annotated[str, Meta(min_length=1, max_length=100_000, description="The command line.")],
        context: ToolContext,
        timeout_ms: Annotated[
            int,
            Meta(
                ge=10,
                description=f"After how many milliseconds it is stopped, at most {limits.max_timeout_ms}.",
            ),
        ] = limits.timeout_ms,
    ) -> ToolOutput:
        """Run a command with bash -lc in the working directory, and return its exit code and output.

        Processes that it leaves behind are ended. There is no input and no terminal.
        """
        wanted = Command(
            session_id=context.session_id,
            argv=["bash", "-lc", command],
            workspace=workspace,
            env=given,
            hosts=[] if on_host else settings.hosts,
            limits=_command_limits(limits, timeout_ms, on_host=on_host),
        )
        # All of the output, which the sandbox bounds: the executor keeps it, and shortens it for the model.
        most = limits.max_output_bytes
        ran = await run_command(sandbox, wanted, _nowhere, head_chars=most, tail_chars=1)
        return ToolOutput(
            ok=not ran.is_error, output_message=ran.result, details={"exit_code": ran.exit_code}
        )

    return bash


def _nowhere(stream: OutputStream, text: str) -> None:
    """Pass nothing on: the result has all of it."""


def _command_limits(limits: ToolLimits, timeout_ms: int, *, on_host: bool) -> SandboxLimits:
    wall_s = min(timeout_ms, limits.max_timeout_ms) / 1000
    if on_host:  # it is the user's own machine: only time and output are bounded
        return SandboxLimits(
            wall_s=wall_s, output_bytes=limits.max_output_bytes, file_bytes=None, open_files=None
        )
    return SandboxLimits(wall_s=wall_s, output_bytes=limits.max_output_bytes)


def _beneath(directory: str, path: str) -> str:
    """Return a path relative to the directory if it is an absolute one inside it. Others are refused when opened."""
    if not path.startswith("/") or "\0" in path:
        return path
    plain = Path(os.path.normpath(path))
    # A link above the directory, such as /tmp on a Mac, gives it several names. The file need not exist.
    for each in (plain, plain.parent.resolve() / plain.name):
        if each.is_relative_to(directory) and each != Path(directory):
            return str(each.relative_to(directory))
    return path


def _artifact(artifacts_dir: str, path: str) -> tuple[Workspace, str] | None:
    """Return where an artifact of the session is, None if the path is that of something else."""
    directory = os.path.realpath(artifacts_dir)
    inside = _beneath(directory, path)
    return None if inside.startswith("/") else (Workspace(directory), inside)


def _changed(ran: ToolRun) -> ToolOutput:
    changes = [{"path": change.path, "diff": change.diff} for change in ran.changes]
    return ToolOutput(
        ok=not ran.is_error, output_message=ran.result, details={"changes": changes} if changes else None
    )
