"""One session as one editor has it open: events go to the editor, its prompts and answers go to the session.

Whoever else works in the session, its events come here in the same order. A turn ends when the event that ends its
task has been shown, so an editor has everything of a turn before the answer to its prompt.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from contextlib import aclosing, suppress

import msgspec
from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from acp.schema import (
    AgentMessageChunk,
    AvailableCommandsUpdate,
    PromptResponse,
    SessionNotification,
    StopReason,
    TextContentBlock,
    Usage,
)

from codesdk.acp_agent.asking import CANCELLED, Open
from codesdk.acp_agent.chunks import Update, Wanted, merged
from codesdk.acp_agent.commands import Command, available, command_in
from codesdk.acp_agent.errors import error_from, error_of
from codesdk.acp_agent.files import Lending
from codesdk.acp_agent.options import Chosen, Options
from codesdk.acp_agent.peer import Peer
from codesdk.acp_agent.prompts import PromptBlock, message_of, text_in, title_in
from codesdk.acp_agent.questions import Questions
from codesdk.acp_agent.updates import Translator
from codesdk.contract import events as ev
from codesdk.contract.actions import ChangeSettings, StartTask, StopTask
from codesdk.contract.errors import CodeSDKError, Conflict, Forbidden, NotFound
from codesdk.contract.records import SessionRow
from codesdk.contract.service import Published, SessionService

_log = logging.getLogger(__name__)

_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "length": "max_tokens",
    "max_turns": "max_turn_requests",
    "refusal": "refusal",
}
_GONE = "The session cannot be followed any more. Load it again."


class Turn:
    """A prompt of this editor, until its task has ended."""

    def __init__(self) -> None:
        self.task_id: str | None = None
        self.cancelled = False
        self.ended: asyncio.Future[PromptResponse] = asyncio.get_running_loop().create_future()

    def end(self, response: PromptResponse) -> None:
        """Answer the prompt."""
        if not self.ended.done():
            self.ended.set_result(response)

    def fail(self, error: RequestError) -> None:
        """Answer the prompt with an error."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # the prompt may have been given up: then nobody looks at it


class Attachment:
    """A session that an editor has open. `has_forms` says whether it can show a form."""

    def __init__(
        self,
        row: SessionRow,
        service: SessionService,
        peer: Peer,
        options: Options,
        *,
        has_forms: bool,
        replay: bool,
        lending: Lending,
    ) -> None:
        self.session_id = row.session_id
        self.options = options
        self._service = service
        self._peer = peer
        # The past begins with what the session was created with; what is chosen now follows from its events.
        self._translator = Translator(row.workspace, Chosen.of(row), options, live=not replay)
        calls = self._translator.calls
        self._questions = Questions(self.session_id, service, peer, calls, self._say, has_forms=has_forms)
        self._turns: list[Turn] = []
        self._lending = lending
        self._titled = row.title is not None
        self._live = not replay
        self._live_from = 0
        self._caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._following: asyncio.Task[None] | None = None
        self._greeting: asyncio.Task[None] | None = None

    @property
    def chosen(self) -> Chosen:
        """What is chosen in the session now."""
        return self._translator.chosen

    async def begin(self) -> None:
        """Follow the session: from its beginning, returning when the past has been shown, or from now on."""
        head = await self._service.head(self.session_id)
        self._live_from = head
        after = head if self._live else 0
        if self._live:
            await self._questions.read()
        self._following = asyncio.create_task(self._follow(after))
        if not self._live:
            await self._caught_up

    def greet(self) -> None:
        """Show what an editor needs once it knows the session: its commands, and what waits for an answer."""
        commands = AvailableCommandsUpdate(
            session_update="available_commands_update", available_commands=available()
        )
        self._greeting = asyncio.create_task(self._greet(commands))

    async def _greet(self, commands: AvailableCommandsUpdate) -> None:
        with suppress(ConnectionError):
            await self._show([commands])
            await self._questions.ask_all()

    async def close(self) -> None:
        """Stop following. Prompts that are still open are answered; what they started goes on."""
        tasks = [task for task in (self._greeting, self._following) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._questions.close()
        self._lending.end()
        self._fail(RequestError(-32603, "The session was closed in the editor."))

    # --- prompts ----------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[PromptBlock]) -> PromptResponse:
        """Run a prompt to its end."""
        turn = Turn()
        self._turns.append(turn)  # before the first await: a cancel may follow at once
        try:
            await self._begin(turn, blocks)
            return await turn.ended
        except asyncio.CancelledError:
            if (
                not self._peer.is_closed
            ):  # taken back; an editor that is gone leaves its task to whoever comes next
                turn.cancelled = True
                await self._stop(turn)
            raise
        finally:
            self._turns.remove(turn)

    async def _begin(self, turn: Turn, blocks: Sequence[PromptBlock]) -> None:
        self._require_following()
        text = text_in(blocks).strip()
        command = command_in(text)
        if command is not None:
            await self._run(turn, *command)
            return
        waiting = self._questions.for_words
        if waiting is not None and text:
            await self._answer_with(turn, waiting, text)
            return
        message = await message_of(blocks, self._service)
        title = None if self._titled else title_in(blocks)
        self._titled = True
        if title is not None:
            await self._service.execute(ChangeSettings(session_id=self.session_id, title=title))
        turn.task_id = f"task_{secrets.token_hex(12)}"
        self._translator.own.add(turn.task_id)
        if turn.cancelled:
            turn.end(PromptResponse(stop_reason="cancelled"))
            return
        self._lending.begin(turn.task_id)
        start = StartTask(session_id=self.session_id, message=[message], task_id=turn.task_id)
        try:
            await self._service.execute(start)
        except CodeSDKError:
            self._lending.end(turn.task_id)
            raise
        if turn.cancelled:
            await self._stop(turn)

    async def _run(self, turn: Turn, command: Command, words: str) -> None:
        done = await command.run(self._service, self.session_id, words)
        if done.text:
            await self._say(done.text)
        if done.task_id is None or not await self._join(turn, done.task_id):
            turn.end(PromptResponse(stop_reason="end_turn"))

    async def _answer_with(self, turn: Turn, asked: Open, text: str) -> None:
        """Take a prompt as the answer to a question that was asked in words. The turn lasts as long as the task."""
        row = await self._service.session(self.session_id)
        await self._service.execute(asked.answer(self.session_id, text))
        if asked.carried:
            row = await self._questions.resume() or row
        if row.active_task_id is None or not await self._join(turn, row.active_task_id):
            turn.end(PromptResponse(stop_reason="end_turn"))

    async def _join(self, turn: Turn, task_id: str) -> bool:
        """Let a turn last as long as a task that runs already. Return whether it still does."""
        turn.task_id = task_id
        self._translator.own.add(task_id)
        return (await self._service.task(task_id)).ended_seq is None

    async def cancel(self) -> None:
        """Stop what this editor's prompts started, or else what runs. What the editor was asked is denied with it."""
        if not await self.cancel_own():
            with suppress(Conflict):
                await self._stop_task(None)

    async def cancel_own(self, *, wait_s: float = 0.0) -> bool:
        """Stop what this editor's prompts started, and wait a while for the end. Return whether there was anything."""
        turns = [turn for turn in self._turns if not turn.ended.done()]
        for turn in turns:
            turn.cancelled = True
            await self._stop(turn)
        if turns and wait_s:
            await asyncio.wait([turn.ended for turn in turns], timeout=wait_s)
        return bool(turns)

    async def _stop(self, turn: Turn) -> None:
        if turn.task_id is None:
            return  # it stops itself once it has one
        with suppress(Conflict, NotFound):
            await self._stop_task(turn.task_id)

    async def _stop_task(self, task_id: str | None) -> None:
        """Stop a task. The questions that this editor shows are denied in its name: it has cancelled them, too."""
        stop = StopTask(session_id=self.session_id, task_id=task_id, reason=CANCELLED)
        try:
            await self._service.execute(msgspec.structs.replace(stop, denies=self._questions.asked))
        except Forbidden:  # it may work here, and not answer
            await self._service.execute(stop)

    async def choose(self, option: str, value: str | bool) -> None:
        """Choose a mode, a model or a runtime."""
        action = self.options.action(self.session_id, option, value, self.chosen)
        if action is not None:
            row = await self._service.execute(action)
            # What the action returns is newer than what was shown; its event follows.
            for field, found in (
                ("mode", row.permission_mode),
                ("model", row.model),
                ("runtime", row.runtime),
            ):
                setattr(self.chosen, field, found)

    # --- events -----------------------------------------------------------------------------------------

    async def _follow(self, after_seq: int) -> None:
        why = RequestError(-32002, "The session is gone.")
        try:
            async with aclosing(self._service.follow(self.session_id, after_seq)) as batches:
                async for batch in batches:
                    await self._take(batch)
        except ConnectionError:
            return  # the editor is gone, and with it all that waits for us
        except CodeSDKError as error:
            why = error_of(error)
        except Exception:  # noqa: BLE001 - a bug of ours: who waits must not wait for ever
            _log.exception("Session %s could not be shown.", self.session_id)
            why = RequestError(-32603, _GONE)
        await self._questions.close()
        self._fail(why)

    def _fail(self, error: RequestError) -> None:
        if not self._caught_up.done():
            self._caught_up.set_exception(error)
            self._caught_up.exception()
        for turn in self._turns:
            turn.fail(error)

    async def _take(self, batch: list[Published]) -> None:
        updates: list[Update] = []
        for item in batch:
            event = item.event
            for update in self._translator.take(event):
                updates += await self._resolve(update) if isinstance(update, Wanted) else [update]
            if event.type in ev.TERMINAL_TYPES or event.type.startswith("approval."):
                await self._show(merged(updates))
                updates.clear()
                await self._react(event)
            if not self._live and item.seq >= self._live_from:
                self._live = True
                await self._show(merged([*updates, *self._translator.go_live()]))
                updates.clear()
                self._caught_up.set_result(None)
        await self._show(merged(updates))

    async def _resolve(self, wanted: Wanted) -> list[Update]:
        """Read what an update needs. What cannot be read is left out: an artifact may have been removed."""
        found: list[bytes | None] = []
        for artifact_id in wanted.artifact_ids:
            try:
                found.append((await self._service.read_artifact(artifact_id))[1])
            except CodeSDKError:
                found.append(None)
        return wanted.make(found)

    async def _show(self, updates: Sequence[Update | AvailableCommandsUpdate]) -> None:
        for update in updates:
            note = SessionNotification(session_id=self.session_id, update=update)
            await self._peer.notify(CLIENT_METHODS["session_update"], note)

    async def _say(self, text: str) -> None:
        content = TextContentBlock(type="text", text=text)
        await self._show([AgentMessageChunk(session_update="agent_message_chunk", content=content)])

    async def _react(self, event: ev.Event) -> None:
        match event.payload:
            case ev.ApprovalRequested() | ev.ApprovalCarried() as payload:
                asked = Open.of(payload)
                self._questions.note(asked)
                if self._live and await self._questions.ask(asked):
                    # The task waits for words, and an editor sends none while a turn of its own goes on.
                    for turn in self._turns:
                        turn.end(PromptResponse(stop_reason="end_turn"))
            case ev.ApprovalAnswered(approval_id=approval_id):
                self._questions.settle(approval_id)
            case ev.TaskCompleted() | ev.TaskFailed() | ev.TaskStopped() as payload:
                self._lending.end(event.trace.task_id)
                for turn in self._turns:
                    if turn.task_id == event.trace.task_id:
                        _end(turn, payload)
            case _:
                pass

    def _require_following(self) -> None:
        if self._following is None or self._following.done():
            raise RequestError(-32603, _GONE)


def _end(turn: Turn, payload: ev.TaskCompleted | ev.TaskFailed | ev.TaskStopped) -> None:
    """Answer a prompt with how its task ended. One that was cancelled is, even if its task was faster."""
    if isinstance(payload, ev.TaskFailed) and not turn.cancelled:
        turn.fail(error_from(payload.error))
        return
    used = payload.usage
    usage = Usage(
        total_tokens=used.input + used.output + used.reasoning + used.cache_read + used.cache_write,
        input_tokens=used.input,
        output_tokens=used.output,
        thought_tokens=used.reasoning,
        cached_read_tokens=used.cache_read,
        cached_write_tokens=used.cache_write,
    )
    reason: StopReason = "cancelled"
    if isinstance(payload, ev.TaskCompleted) and not turn.cancelled:
        reason = _STOP_REASONS.get(payload.stop_reason, "end_turn")
    turn.end(PromptResponse(stop_reason=reason, usage=usage))
