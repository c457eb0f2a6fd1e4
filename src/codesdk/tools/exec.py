"""`workspace.exec`: a program and its arguments → its output as it arrives and how it ended. Off by default.

Runs only what the operator's list allows, in a sandbox and without a shell. Policy may narrow that further.
"""

import codecs
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from codesdk.contract.bounds import check_bounds
from codesdk.contract.ports import ToolRun, ToolSink
from codesdk.contract.tools import SandboxSummary, Subjects, ToolAnnotations
from codesdk.sandbox import (
    Command,
    CommandEnd,
    LimitName,
    Sandbox,
    SandboxCapabilities,
    SandboxLimits,
    SandboxUnavailable,
    Stream,
    TriggerWatch,
)
from codesdk.tools.registry import Tool, ToolContext, ToolError, make_tool

HEAD_CHARS = 4_000
TAIL_CHARS = 12_000
_MAX_ALLOWED_SHOWN = 20
_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
_IN_WORDS: Mapping[LimitName, str] = {
    "wall": "It was stopped because its time was up.",
    "output": "It was stopped because it wrote too much.",
    "cpu": "It was stopped because it used too much processor time.",
    "memory": "It reached the memory limit.",
    "processes": "It reached the process limit.",
    "file_size": "It was stopped because a file became too large.",
}


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
    # A string is a sequence of strings too, so a type checker does not catch this mistake.
    if any(isinstance(prefix, str) for prefix in allow):
        raise ValueError('write each allowed command as a list: ["git", "status"], not "git status"')
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
        said = _Said(context.output)
        watch = TriggerWatch(command.workspace)
        try:
            end = await sandbox.run(command, said.take)
        finally:
            # Also if it was stopped: then there is no result that could say it, but output is recorded.
            warning = watch.warning()
            if warning is not None:
                context.output("progress", f"{warning}\n")
        said.finish()
        return ToolRun(result=_told(end, said, warning), is_error=end.exit_code != 0, exit_code=end.exit_code)

    tool = make_tool(
        run,
        name="workspace.exec",
        tool_class="dangerous",
        description=_description(allow),
        sandbox=_summary(found, bounds, hosts),
        annotations=ToolAnnotations(title="Run a command", destructive=True),
        subjects=_subjects,
    )
    return msgspec.structs.replace(
        tool, execution_env=found.execution_env, close_session=sandbox.close_session
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


class _Said:
    """A command's output: passed on as text, with its beginning and end kept for the result."""

    def __init__(self, output: ToolSink) -> None:
        self._output = output
        decoder = codecs.getincrementaldecoder("utf-8")
        # Incremental, and one for each stream: chunks may cut characters, and the two streams interleave.
        self._decoders = {stream: decoder("replace") for stream in _STREAMS}
        self._kept = {stream: _HeadAndTail() for stream in _STREAMS}

    def take(self, stream: Stream, data: bytes) -> None:
        """Take some bytes. They may end in the middle of a character."""
        self._pass_on(stream, self._decoders[stream].decode(data))

    def finish(self) -> None:
        """Flush the decoders: the output has ended."""
        for stream in _STREAMS:
            self._pass_on(stream, self._decoders[stream].decode(b"", final=True))

    def shown(self, stream: Stream) -> str:
        """Return what was kept of a stream, with a note on what was left out."""
        return self._kept[stream].text()

    def _pass_on(self, stream: Stream, text: str) -> None:
        if text:
            self._kept[stream].add(text)
            self._output(stream, text)


class _HeadAndTail:
    """Keeps the beginning and the end of a text of any length."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._chars = 0

    def add(self, text: str) -> None:
        self._chars += len(text)
        room = HEAD_CHARS - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-TAIL_CHARS:]

    def text(self) -> str:
        left_out = self._chars - len(self._head) - len(self._tail)
        gap = f"\n… ({left_out} characters left out) …\n" if left_out else ""
        return f"{self._head}{gap}{self._tail}"


def _told(end: CommandEnd, said: _Said, warning: str | None) -> str:
    """Return how a command ended, in words, then its output."""
    lines = [f"Exit code {end.exit_code} after {end.duration_ms / 1000:.1f} s."]
    lines += [_IN_WORDS.get(limit, f"It reached the limit on {limit}.") for limit in end.limits_hit]
    if end.oom_kills:
        lines.append(f"Processes killed because memory ran out: {end.oom_kills}.")
    if end.refused_hosts:
        lines.append(f"Hosts that it may not reach: {', '.join(end.refused_hosts)}.")
    parts = [" ".join(lines), *([warning] if warning else [])]
    for stream in _STREAMS:
        if text := said.shown(stream):
            parts.append(f"--- {stream} ---\n{text.removesuffix(chr(10))}")
    return "\n".join(parts)
