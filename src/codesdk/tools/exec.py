"""`workspace.exec`: a program and its arguments → its output as it arrives and how it ended. Off by default.

Runs only what the operator's list allows, in a sandbox and without a shell. Policy may narrow that further.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from codesdk.contract.bounds import check_bounds
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import ToolRun
from codesdk.contract.tools import SandboxSummary, Subjects, ToolAnnotations
from codesdk.sandbox import (
    Command,
    LimitName,
    Sandbox,
    SandboxCapabilities,
    SandboxLimits,
    SandboxUnavailable,
)
from codesdk.tools.command import run_command
from codesdk.tools.names import EXEC
from codesdk.tools.registry import Tool, ToolContext, ToolError, make_tool

_MAX_ALLOWED_SHOWN = 20


class ExecInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.exec` takes."""

    argv: Annotated[
        list[Annotated[str, Meta(max_length=100_000)]],
        Meta(
            min_length=1,
            max_length=1_000,
            description='The program and its arguments, like ["git", "status"]. There is no shell: no pipes, no globs, no variables.',
        ),
    ]
    cwd: Annotated[str, Meta(min_length=1, description="The directory, relative to the workspace.")] = "."
    timeout_s: Annotated[int, Meta(ge=1, le=3_600, description="After how many seconds it is stopped.")] = 120


async def exec_tool(
    sandbox: Sandbox,
    *,
    allow: Sequence[Sequence[str]],
    limits: SandboxLimits | None = None,
    required: frozenset[LimitName] = frozenset(),
    hosts: Sequence[str] = (),
    writable: bool = True,
) -> Tool:
    """Return the tool. Raise `SandboxUnavailable` if the sandbox cannot run commands as required.

    `allow` lists prefixes of commands that may run: `[["git", "status"], ["pytest"]]`; an empty prefix allows
    everything. `limits` bound every command; the model may ask for less time, not for more.
    """
    check_allowed(allow)
    found = await sandbox.capabilities()
    _require(found, required, hosts)
    bounds = limits or SandboxLimits()
    check_bounds(bounds)

    async def run(args: ExecInput, context: ToolContext) -> ToolRun:
        _require_allowed(args.argv, allow)
        wall_s = min(float(args.timeout_s), bounds.wall_s)  # the operator's limit cannot be raised by a model
        command = Command(
            session_id=context.call.session_id,
            argv=args.argv,
            workspace=context.call.workspace,
            cwd=args.cwd,
            writable=writable,
            hosts=hosts,
            limits=msgspec.structs.replace(bounds, wall_s=wall_s),
            required=required,
        )
        return await run_command(sandbox, command, context.output)

    tool = make_tool(
        run,
        name=EXEC,
        tool_class="dangerous",
        description=_description(allow),
        sandbox=_summary(found, bounds, hosts),
        annotations=ToolAnnotations(title="Run a command", destructive=True),
        subjects=_subjects,
    )
    return msgspec.structs.replace(
        tool, execution_env=found.execution_env, close_session=sandbox.close_session
    )


def check_allowed(allow: Sequence[Sequence[str]]) -> None:
    """Raise `InvalidRequest` unless each allowed command is a list of words."""
    # A string is a sequence of strings too, so a type checker does not catch this mistake.
    if isinstance(allow, str) or any(isinstance(prefix, str) for prefix in allow):
        raise InvalidRequest(
            'Invalid argument: allow: write each allowed command as a list: ["git", "status"], not "git status".'
        )


def _subjects(args: ExecInput) -> Subjects:
    return Subjects(argv=list(args.argv))


def _require(found: SandboxCapabilities, required: frozenset[LimitName], hosts: Sequence[str]) -> None:
    if not found.available:
        raise SandboxUnavailable(" ".join(found.notes))
    if missing := sorted(required - found.limits):
        raise SandboxUnavailable(f"The {found.backend} sandbox cannot limit {', '.join(missing)} here.")
    if hosts and not found.egress:
        raise SandboxUnavailable(f"The {found.backend} sandbox cannot allow single hosts.")


def _require_allowed(argv: Sequence[str], allow: Sequence[Sequence[str]]) -> None:
    if any(list(argv[: len(prefix)]) == list(prefix) for prefix in allow):
        return
    raise ToolError(f"This command is not allowed here. {_allowed_words(allow)}")


def _allowed_words(allow: Sequence[Sequence[str]]) -> str:
    if any(not prefix for prefix in allow):
        return "Every program may be run."
    shown = ", ".join(" ".join(prefix) for prefix in allow[:_MAX_ALLOWED_SHOWN]) or "nothing"
    more = f" and {len(allow) - _MAX_ALLOWED_SHOWN} more" if len(allow) > _MAX_ALLOWED_SHOWN else ""
    return f"Allowed are commands that begin with: {shown}{more}."


def _description(allow: Sequence[Sequence[str]]) -> str:
    return (
        "Run a program in the workspace, inside a sandbox and without a shell, and return its exit code and output. "
        f"Processes that it leaves behind are ended. {_allowed_words(allow)}"
    )


def _summary(found: SandboxCapabilities, limits: SandboxLimits, hosts: Sequence[str]) -> SandboxSummary:
    return SandboxSummary(
        network=bool(hosts) or not found.network,
        timeout_ms=round(limits.wall_s * 1000),
        mounts=["workspace"] if found.filesystem else None,
    )
