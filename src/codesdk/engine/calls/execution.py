"""Runs approved calls, and records their output, results and file changes as events and artifacts.

`Executions` runs the tools; `Execution` records one run.
"""

import asyncio
from typing import Any, cast, get_args

import msgspec

from codesdk.contract.canonical import CanonicalError, hash_json
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.ports import AskUser, FileChange, ToolInvocation, ToolRun
from codesdk.contract.runtime import ToolReply
from codesdk.contract.text import mend
from codesdk.contract.tools import Change, Outcome, OutputStream, Question
from codesdk.engine.calls import ledger
from codesdk.engine.calls.approvals import Approvals
from codesdk.engine.calls.inputs import LiveCall
from codesdk.engine.calls.server_questions import ServerQuestions
from codesdk.engine.log.state import CallState
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.validation import is_deep
from codesdk.foreign import call as run_foreign, name_of
from codesdk.redaction import StreamRedactor

MAX_DELTA_BYTES = 1024 * 1024
MAX_KEPT_BYTES = 16 * 1024 * 1024
PREVIEW_CHARS = 2000
_STREAMS = frozenset(get_args(OutputStream))
_MAX_EXIT_CODE = 2**31


class Executions:
    """The running calls of one task: read-only tools side by side, all others one at a time."""

    def __init__(self, scope: SessionScope, writes: asyncio.Lock, approvals: Approvals) -> None:
        self._scope = scope
        self._writes = writes
        self._approvals = approvals
        self.running: set[asyncio.Task[ToolRun]] = set()
        """The tools that run now."""

    async def run(self, call: LiveCall) -> ToolReply | str:
        """Run an approved call to its end. Return its result, or why it did not run."""
        # What only reads can run beside others; two writers could undo each other's work.
        if call.state.tool_class == "read_only":
            return await self._run_now(call)
        async with self._writes:
            return await self._run_now(call)

    def cancel_all(self) -> None:
        """Cancel every running tool."""
        for running in self.running:
            running.cancel()

    async def _run_now(self, call: LiveCall) -> ToolReply | str:
        state, tool = self._scope.state, call.prepared
        if not state.is_open(call.state):
            return call.state.closing_words
        assert tool is not None, "only a judged call is approved"
        ledger.started(self._scope.journal, call.state, tool.execution_env, tool.sandbox)
        # Stored before the tool runs: after a crash the log then says that it may have taken effect.
        await self._scope.recorder.settle()
        execution = Execution(self._scope, call.state)
        if state.task is not None and state.task.stop is not None:
            return execution.finish_unrun(f"{lifecycle.STOP_REASON}.")
        if call.left_because is not None:
            return execution.finish_unrun(call.left_because)
        asked: list[ServerQuestions] = []  # of most calls none: they ask nothing
        running = call.tool = asyncio.create_task(
            run_foreign(tool.run, self._invocation(call, self._asking(call, asked)), execution.take_output)
        )
        self.running.add(running)
        try:
            await asyncio.wait([running])
        finally:
            self.running.discard(running)
            running.cancel()
            for questions in asked:
                questions.close()
        return await execution.finish(running)

    def _asking(self, call: LiveCall, asked: list[ServerQuestions]) -> AskUser:
        async def ask(question: Question) -> str | None:
            if call.tool is None or call.tool.done():
                return None  # whoever asks has outlived its call
            if not asked:
                asked.append(ServerQuestions(self._scope, self._approvals))
            return await asked[0].ask(question)

        return ask

    def _invocation(self, call: LiveCall, ask: AskUser) -> ToolInvocation:
        state, identity = self._scope.state, call.state.identity
        task_id = state.task.task_id if state.task else None
        editors = self._scope.ports.editors
        return ToolInvocation(
            session_id=state.session_id,
            task_id=task_id,
            tool_call_id=identity.tool_call_id,
            attempt=identity.attempt,
            name=call.state.name,
            input=call.input.value,
            workspace=self._scope.workspace,
            ask=ask,
            editor=None if editors is None else editors.of_task(task_id),
        )


class Execution:
    """Writes what happens between `tool.call.started` and `tool.call.completed`."""

    def __init__(self, scope: SessionScope, call: CallState) -> None:
        self._scope = scope
        self._call = call
        self._redactors: dict[OutputStream, StreamRedactor] = {}
        self._kept: dict[OutputStream, list[str]] = {}
        self._bytes = 0
        self._truncated = False
        self._ended = False
        self.result_bytes = 0
        """How large the result was that was recorded."""

    def take_output(self, stream: OutputStream, text: str) -> None:
        """Record a running tool's output, within the limits."""
        if (
            self._ended
            or self._scope.recorder.broken is not None
            or not self._scope.state.is_open(self._call)
        ):
            return  # a tool that cannot be cancelled may outlive its call
        # A tool is code of others: what its types promise is checked before it is stored.
        known: OutputStream = stream if type(stream) is str and stream in _STREAMS else "stdout"
        redactor = self._redactors.get(known)
        if redactor is None:
            redactor = self._redactors[known] = self._scope.redactor.stream()
        self._emit(known, redactor.feed(mend(text if type(text) is str else str(text))))

    def finish_unrun(self, why: str) -> ToolReply:
        """End a call whose start was recorded, but which never ran."""
        words = f"Not run: {why}"
        ledger.completed(self._scope.journal, self._call, is_error=True, result_preview=words)
        return ToolReply(result=words, is_error=True)

    async def finish(self, running: asyncio.Task[ToolRun]) -> ToolReply:
        """End the call with the tool's result, its error or its cancellation."""
        self._ended = True
        return await self.record(_outcome(running))

    async def record(self, run: ToolRun, outcome: Outcome = "known") -> ToolReply:
        """Record the end of the call: its result, its changes and its output."""
        run = _sound(run)
        result = self._clean(run.result)
        preview, ref = await self._present(result)
        changes = [await self._change(index, change) for index, change in enumerate(run.changes)]
        refs = await self._close_output()
        journal = self._scope.journal
        if refs is not None:
            ledger.output_end(journal, self._call, self._bytes, self._truncated, refs)
        ledger.completed(
            journal,
            self._call,
            is_error=run.is_error,
            outcome=outcome if outcome == "known" else "unknown",
            result_preview=preview,
            result_ref=ref,
            exit_code=run.exit_code,
            changes=changes,
        )
        return ToolReply(result=result, is_error=run.is_error)

    def _emit(self, stream: OutputStream, text: str) -> None:
        if not text:
            return
        size = len(text.encode("utf-8", "replace"))
        if self._bytes + size <= MAX_DELTA_BYTES:
            ledger.output(self._scope.journal, self._call, stream, text)
        if self._bytes + size <= MAX_KEPT_BYTES:
            self._kept.setdefault(stream, []).append(text)
        else:
            self._truncated = True
        self._bytes += size

    async def _close_output(self) -> list[ArtifactRef] | None:
        for stream, redactor in self._redactors.items():
            self._emit(stream, redactor.flush())
        if not self._redactors:
            return None
        refs: list[ArtifactRef] = []
        for stream, texts in self._kept.items():
            data = "".join(texts).encode("utf-8", "replace")
            refs.append(await self._scope.put_artifact(data, "text/plain; charset=utf-8", stream))
        return refs

    def _clean(self, result: Any) -> Any:
        """Return a result as it is stored: plain JSON that can be hashed, without secrets."""
        if type(result) is str and result.isascii():  # the common case, and nothing to mend
            return self._scope.redactor.text(result)
        data = b""
        try:
            data = msgspec.json.encode(mend(msgspec.to_builtins(result)))
            plain = data.decode() if is_deep(data) else msgspec.json.decode(data)
            if not isinstance(plain, str):
                hash_json(plain)  # it must be hashable: it becomes part of the transcript
        except CanonicalError:
            plain = data.decode()
        except (TypeError, ValueError, RecursionError, OverflowError):
            plain = repr(result)
        return self._scope.redactor.value(plain)

    async def _present(self, result: Any) -> tuple[Any, ArtifactRef | None]:
        """Return a result as the event shows it: whole if small, else a preview and a reference."""
        is_text = isinstance(result, str)
        data = result.encode("utf-8", "replace") if is_text else msgspec.json.encode(result)
        self.result_bytes = len(data)
        if self.result_bytes <= self._scope.settings.result_inline_bytes:
            return result, None
        kind = "text/plain; charset=utf-8" if is_text else "application/json"
        ref = await self._scope.put_artifact(data, kind, "result")
        text = data[: PREVIEW_CHARS * 4].decode("utf-8", "replace")[:PREVIEW_CHARS]
        return f"{text}… ({len(data):,} bytes in all, kept as {ref.content_hash})", ref

    async def _change(self, index: int, change: FileChange) -> Change:
        undo = await self._keep(index, change)  # before the event that promises it
        data = change.diff.encode("utf-8", "replace")
        path = mend(change.path)
        ref = await self._scope.put_artifact(data, "text/x-diff; charset=utf-8", path)
        return Change(path=path, diff_ref=ref, undo=undo)

    async def _keep(self, index: int, change: FileChange) -> str | None:
        """Keep what an undo needs. It is not redacted, because it is restored and never shown."""
        if change.kept is None:
            return None
        identity = self._call.identity
        name = f"{identity.tool_call_id}.{identity.attempt}.{index}"
        await self._scope.ports.undo.keep(self._scope.state.session_id, name, change.kept)
        return name


async def record_run(scope: SessionScope, call: CallState, run: ToolRun, outcome: Outcome) -> int:
    """Record the end of a call that its runtime ran itself. Return how many bytes its result has."""
    execution = Execution(scope, call)
    await execution.record(run, outcome)
    return execution.result_bytes


def _outcome(running: asyncio.Task[ToolRun]) -> ToolRun:
    if not running.done() or running.cancelled():
        return ToolRun(result="Cancelled: the task was stopped while this ran.", is_error=True)
    error = running.exception()
    if error is None:
        return running.result()
    if isinstance(error, CodeSDKError):
        return ToolRun(result=error.message, is_error=True)
    return ToolRun(result=f"The tool failed: {name_of(error)}", is_error=True)


def _sound(given: object) -> ToolRun:
    """Return what a tool or a runtime gave back if it is as its type promises, else an error that says so."""
    problem = _unsound(given)
    if problem is None:
        return cast("ToolRun", given)
    words = f"The tool gave back something that cannot be recorded ({problem}). What it did is not known."
    return ToolRun(result=words, is_error=True)


def _unsound(given: object) -> str | None:
    """Return what is wrong with a run, or None. Its result may be anything."""
    if not isinstance(given, ToolRun):
        return f"{type(given).__name__} instead of a ToolRun"
    is_error: Any = given.is_error
    exit_code: Any = given.exit_code
    changes: Any = given.changes
    if type(is_error) is not bool:
        return "is_error is neither true nor false"
    if exit_code is not None and not (type(exit_code) is int and abs(exit_code) <= _MAX_EXIT_CODE):
        return "exit_code is not a number that a program can end with"
    if not isinstance(changes, list | tuple) or not all(map(_is_change, cast("list[Any]", changes))):
        return "changes are not a list of changed files"
    return None


def _is_change(given: object) -> bool:
    if not isinstance(given, FileChange):
        return False
    path: Any = given.path
    diff: Any = given.diff
    return isinstance(path, str) and isinstance(diff, str)
