"""Hands a task to its runtime: continues the runtime's own conversation, or begins one from the transcript.

What is decided here is recorded before it happens, and told to the runtime in `TaskInput.history`. A runtime that
cannot go on natively after all is given the transcript, which is recorded as well.
"""

import asyncio
from collections.abc import Sequence

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import Message
from codesdk.contract.records import MessageRow
from codesdk.contract.runtime import (
    HistoryKeeper,
    HistoryLost,
    Host,
    Instructions,
    Runtime,
    RuntimeTask,
    TaskInput,
    keeper_of,
)
from codesdk.engine.log.transcript import is_model_message
from codesdk.engine.sessions.resources import Resources
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.adapter_calls import start
from codesdk.engine.tasks.compaction import OVER_BUDGET, TOO_LARGE, carry_out, plan
from codesdk.engine.tasks.context import (
    Compiled,
    Offered,
    load_window,
    read_rows,
    task_input,
    write_delta,
    write_whole,
)
from codesdk.engine.tasks.window import PAGE_MESSAGES, Window
from codesdk.foreign import call

FEW_MESSAGES = 2


class Handover:
    """Gives the tasks of one session to its runtime, one after the other."""

    def __init__(self, scope: SessionScope, resources: Resources) -> None:
        self.input_seq = 0
        """The seq of the last compiled input: what was said before it is part of it."""
        self._scope = scope
        self._resources = resources
        self._window: Window | None = None
        self._shown = 0
        """How much of the transcript the model requests are compared with."""
        self._lost = False
        self._waiting: list[int] = []
        """The seqs of messages that were added to a task and wait for its runtime to take them."""
        self.went_native: bool | None = None
        """Whether the last task went on with the runtime's own conversation; None if it keeps none."""

    def lose(self) -> None:
        """Do not go on natively: the runtime may not have been told all that the transcript has."""
        self._lost = True

    def expect(self, seq: int) -> None:
        """Note that a message was added to the running task, which its runtime must still be told."""
        self._waiting.append(seq)

    def took(self, seq: int) -> None:
        """Note that the runtime has taken a message that was added to its task."""
        if seq in self._waiting:
            self._waiting.remove(seq)

    async def begin(self, task_id: str, host: Host, offered: Offered, said: int | None = None) -> RuntimeTask:
        """Have the runtime start the task, with what is recorded as its input.

        If its turn is over and it is asked for more, `said` is the first message since then, by its index.
        """
        runtime = self._resources.runtime
        instructions = offered.captured.files if offered.captured else ()
        await self._compact_if_due(runtime)
        first = await self._resumable(runtime, host, task_id, instructions, said)
        if first is not None:
            compiled = self._written(*await write_delta(self._scope, first, offered))
            await self._show_more(compiled)
            try:
                return await self._start(runtime, host, task_id, compiled, instructions)
            except HistoryLost as lost:
                self._note_loss(runtime, str(lost))
        window = self._window_for(runtime)
        compiled = self._written(*await write_whole(self._scope, window, offered))
        self._shown = compiled.through
        self._resources.tap.hand_over(
            compiled.messages, self._scope.tools.specs(), compiled.context_window.strategy
        )
        return await self._start(runtime, host, task_id, compiled, instructions)

    def _written(self, compiled: Compiled, seq: int) -> Compiled:
        """Return a compiled input. What was said before its event is part of it."""
        self.input_seq = seq
        self._waiting = [waiting for waiting in self._waiting if waiting > seq]
        return compiled

    async def _start(
        self,
        runtime: Runtime,
        host: Host,
        task_id: str,
        compiled: Compiled,
        instructions: Sequence[Instructions],
    ) -> RuntimeTask:
        history = "native" if compiled.context_window.strategy == "delta" else "given"
        given = task_input(self._scope, task_id, compiled.messages, history, instructions)
        # Until it has started, nobody knows how much of the input it has taken.
        self._lost = True
        handle = await start(runtime, host, given, self._scope.settings.start_timeout_s)
        self._lost = False
        self.went_native = history == "native" if keeper_of(runtime) is not None else None
        return handle

    async def _resumable(
        self,
        runtime: Runtime,
        host: Host,
        task_id: str,
        instructions: Sequence[Instructions],
        said: int | None,
    ) -> int | None:
        """Return from which message on a runtime must be told, if it can go on with its own conversation."""
        state = self._scope.state
        task = state.task
        keeper = keeper_of(runtime)
        if keeper is None or task is None or task.summarizes_before is not None:
            return None
        if not state.context.native or state.runtime_session_id is None:
            return None
        tail = await self._tail(task.started_seq, said) if not self._lost else []
        known: int | None = None
        if tail:
            setup = task_input(self._scope, task_id, (), "native", instructions)
            known = await self._recall(keeper, host, setup, [row.message for row in tail])
        if not known or known > len(tail):
            self._note_loss(runtime, "")
            return None
        return tail[0].index + min(known, self._count_told(tail))

    def _count_told(self, tail: Sequence[MessageRow]) -> int:
        """Return how many of the last messages the runtime was told, or wrote: a live copy has no others."""
        untold = self._scope.state.context.untold
        waiting = min(self._waiting, default=None)
        for count, row in enumerate(tail):
            if untold is not None and row.index >= untold:
                return count
            # An answer may be sealed by the message after it, and has its seq.
            if waiting is not None and row.seq >= waiting and row.message.role == "user":
                return count
        return len(tail)

    async def _recall(
        self, keeper: HistoryKeeper, host: Host, setup: TaskInput, tail: list[Message]
    ) -> int | None:
        try:
            async with asyncio.timeout(self._scope.settings.start_timeout_s):
                return await call(keeper.recall, host, setup, tail)
        except CodeSDKError:
            raise
        except Exception:  # noqa: BLE001 - whatever an adapter raises: the transcript is always there
            return None

    async def _tail(self, before_seq: int, said: int | None) -> list[MessageRow]:
        """Return the model's last answer and what came after it, until the task, or until message `said` in it.

        Empty if that is long ago.
        """
        end = self._scope.state.messages
        for count in (FEW_MESSAGES, PAGE_MESSAGES):  # mostly it is the last one but one
            rows = await read_rows(self._scope, max(0, end - count), end)
            rows = [row for row in rows if (row.seq < before_seq if said is None else row.index < said)]
            for place in range(len(rows) - 1, -1, -1):
                if is_model_message(rows[place].message):
                    return rows[place:]
        return []

    def _window_for(self, runtime: Runtime) -> Window:
        """Return a window of the transcript. It is kept only for runtimes that are given one with each task."""
        state, budget = self._scope.state, self._scope.settings.context_budget_tokens
        task, compacted = state.task, state.context.compacted
        if keeper_of(runtime) is not None or (task is not None and task.summarizes_before is not None):
            end = task.summarizes_before if task is not None else None
            return Window(state.session_id, runtime.name, budget, compacted, end)
        if self._window is None or not self._window.is_for(runtime.name, budget, compacted):
            self._window = Window(state.session_id, runtime.name, budget, compacted)
        return self._window

    async def _show_more(self, compiled: Compiled) -> None:
        """Have model requests compared with the conversation as it is now, most of which the runtime has itself."""
        scope, tap = self._scope, self._resources.tap
        if not self._shown:
            state = scope.state
            budget = scope.settings.context_budget_tokens
            window = Window(state.session_id, state.runtime_name, budget, state.context.compacted)
            await load_window(scope, window)
            rows = [*([window.summary] if window.summary else []), *window.rows]
            tap.hand_over([row.message for row in rows], scope.tools.specs(), "delta")
        else:
            rows = await read_rows(scope, self._shown, compiled.through)
            tap.continue_with([row.message for row in rows], scope.tools.specs())
        self._shown = compiled.through

    async def _compact_if_due(self, runtime: Runtime) -> None:
        """Leave out old turns if the runtime's own conversation has passed the budget, or the model refused it."""
        context, settings = self._scope.state.context, self._scope.settings
        task = self._scope.state.task
        if task is None or task.summarizes_before is not None:
            return
        budget = settings.context_budget_tokens
        native = keeper_of(runtime) is not None and context.native
        if native and context.tokens > budget:
            # Half of it, so that the next tasks can go on natively again.
            planned = await plan(self._scope, lifecycle.ENGINE, OVER_BUDGET, max(1, budget // 2))
        elif context.too_large and settings.auto_compact != "off":
            planned = await plan(self._scope, lifecycle.ENGINE, TOO_LARGE)
        else:
            return
        carry_out(self._scope, planned)

    def _note_loss(self, runtime: Runtime, why: str) -> None:
        words = f"{runtime.name} could not continue its own copy of the conversation"
        message = f"{words}{f' ({why})' if why else ''}; it was given the transcript."
        lifecycle.notice(self._scope.journal, "reconstructed", message, {})
