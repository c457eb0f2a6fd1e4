"""A conversation of minicode alone: messages in, turns out, and a file that has what every turn added.

`Session` keeps the transcript, `Turn` is one piece of work on it. The work itself is the loop in `agent`; what a turn
added is stored before its last event is seen.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import msgspec

from codesdk.contract.errors import (
    Busy,
    CodeSDKError,
    Conflict,
    ErrorInfo,
    InvalidRequest,
    StorageFailure,
    TaskFailure,
)
from codesdk.contract.ids import ulid
from codesdk.contract.messages import ArtifactBlock, ContentBlock, Message, Role, Text, text_of
from codesdk.contract.validation import checked
from codesdk.minicode import agent, types as t
from codesdk.minicode.compaction import summarize
from codesdk.minicode.storage import FsArtifactStore, UnusableSession

MAX_AHEAD = 1_000
"""How many events a turn may be ahead of whoever listens to it. Who does not listen at all is not waited for."""
Ask = str | Sequence[ContentBlock] | t.TurnRequest
End = t.Finish | t.Abort | t.TurnError


class Hearing(Protocol):
    """Whoever is told of the events of one turn, beside whoever listens."""

    def tell(self, event: t.TurnEvent) -> None:
        """Take an event. Must not wait and must not raise."""
        ...


class Turn:
    """One turn, which works by itself from the moment it is sent. `events` tell of it, `response` is its outcome."""

    def __init__(
        self,
        work: agent.Turn,
        said: Sequence[Message],
        settle: Callable[[End], Awaitable[End]],
        tell: Callable[[t.TurnEvent], None],
    ) -> None:
        self._work = work
        self._said = said
        self._settle = settle
        self._tell = tell
        self._told: deque[t.TurnEvent] = deque()
        self._changed = asyncio.Event()
        self._listening = False
        self._room = asyncio.Event()
        self._end: End | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def events(self) -> AsyncGenerator[t.TurnEvent, None]:
        """What happens, from the beginning, until a `Finish`, an `Abort` or a `TurnError`. To be iterated once."""
        if self._listening:
            raise Conflict("The events of a turn can be iterated once, and something already does.")
        self._listening = True
        return self._listen()

    @property
    def response(self) -> "_Response":
        """Awaitable: how the turn ended. Raises `TaskFailure` if it failed; an aborted one has a response, too."""
        return _Response(self._outcome)

    @property
    def over(self) -> bool:
        """Whether it has ended, and what it added is stored."""
        return self._end is not None or self._task.done()

    def steer(self, message: Ask) -> None:
        """Tell the model something more before its next step. Raise `Conflict` if the turn is over."""
        if not self._work.steer([message_of(message)]):
            raise Conflict("The turn is over. Send the message as a new one.")

    def abort(self, reason: str = "It was given up.") -> None:
        """Give the turn up. What was said so far stays in the transcript."""
        self._work.abort(reason)

    async def _run(self) -> None:
        async with aclosing(self._work.events()) as events:
            async for event in events:
                if isinstance(event, t.Finish | t.Abort | t.TurnError):
                    event = await self._settle(event)
                    self._end = event
                self._told.append(event)
                self._changed.set()
                self._tell(event)
                while self._listening and len(self._told) > MAX_AHEAD and self._end is None:
                    self._room.clear()
                    await self._room.wait()

    async def _listen(self) -> AsyncGenerator[t.TurnEvent, None]:
        try:
            while True:
                while self._told:
                    event = self._told.popleft()
                    self._room.set()
                    yield event
                    if isinstance(event, t.Finish | t.Abort | t.TurnError):
                        return
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._listening = False  # a turn goes on when nobody listens any more
            self._room.set()

    async def _outcome(self) -> t.TurnResponse:
        await asyncio.wait([self._task])
        if self._end is None:
            raise TaskFailure(
                "The turn was cut off: its session was closed.", code="INTERRUPTED", retryable=True
            )
        if isinstance(self._end, t.TurnError):
            raise _failure(self._end.error)
        reason = "aborted" if isinstance(self._end, t.Abort) else self._end.finish_reason
        answers = [message for message in self._work.added if message.role == "assistant"]
        return t.TurnResponse(
            text=text_of(answers[-1].content) if answers else "",
            response_messages=[*self._said, *self._work.added],
            finish_reason=reason,
            total_usage=self._end.total_usage,
        )

    async def closed(self) -> None:
        """Give the turn up and wait until it is over."""
        self.abort("The session was closed.")
        self._listening = False
        self._room.set()
        await asyncio.wait([self._task])


class _Response:
    """What `await turn.response` gives. May be awaited any number of times."""

    def __init__(self, outcome: Callable[[], Coroutine[Any, Any, t.TurnResponse]]) -> None:
        self._outcome = outcome

    def __await__(self) -> Generator[Any, None, t.TurnResponse]:
        return self._outcome().__await__()


class Session:
    """A session that is open. `send` works in it, one turn at a time."""

    def __init__(
        self,
        state: t.SessionState,
        *,
        worker: agent.Agent,
        repository: t.SessionRepository,
        artifacts: FsArtifactStore,
        hear: Callable[[t.SessionState], Hearing],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._state = state
        self._stored = state  # what the file has: the same, unless a turn could not be stored
        self._kept_as: str | None = None
        self._agent = worker
        self._repository = repository
        self._artifacts = artifacts
        self._hear = hear
        self._close = close
        self._turn: Turn | None = None
        self._compacting = False
        self._closed = False

    @property
    def id(self) -> str:
        """Its id, by which it is opened again."""
        return self._state.id

    @property
    def turn(self) -> Turn | None:
        """The turn that was sent last."""
        return self._turn

    def snapshot(self) -> t.SessionState:
        """Return what it has now: all but the turn that runs."""
        return self._state

    def send(self, message: Ask) -> Turn:
        """Begin a turn with a message. Raise `Busy` while another one runs."""
        self._require_idle()
        return self._begin([message_of(message)])

    async def compact(self) -> None:
        """Have the model sum up the conversation, which then goes on from the summary."""
        self._require_idle()
        if not self._state.messages:
            raise InvalidRequest("There is nothing to sum up: the session has no messages.")
        self._compacting = True
        try:
            summary = await summarize(self._agent, self._state.messages, self._ids())
            await self._save(self._changed([summary.message], summary.usage))
        finally:
            self._compacting = False

    async def attach(self, path: str | Path, media_type: str) -> ArtifactBlock:
        """Keep a file with the session. Return the block by which a message refers to it."""
        data = await asyncio.to_thread(Path(path).read_bytes)
        kept = await self._artifacts.write_bytes(self.id, "attachment", data, media_type)
        return ArtifactBlock(artifact_id=kept.id, content_type=media_type, name=Path(path).name)

    async def close(self) -> None:
        """Give up the turn that runs, and release what the session holds. Its file stays.

        Raise `CodeSDKError` if a turn could not be stored before and cannot be stored now.
        """
        if self._closed:
            return
        self._closed = True
        if self._turn is not None:
            await self._turn.closed()
        try:
            if self._state is not self._stored and self._kept_as is None:
                await self._store(self._state)
        finally:
            await self._close()

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- a turn ---------------------------------------------------------------------------------------

    def _require_idle(self) -> None:
        if self._closed:
            raise Conflict(f"The session {self.id} is closed. Open it again.")
        if self._kept_as is not None:
            raise Conflict(
                f"The file of the session {self.id} is no longer what this turn would go on from. The last turn is"
                f" kept as the session {self._kept_as}: open that one, or {self.id} again.",
                details={"kept_as": self._kept_as},
            )
        if self._compacting or (self._turn is not None and not self._turn.over):
            raise Busy(
                f"The session {self.id} is busy with a turn. Wait for its response, steer it, or abort it.",
                code="SESSION_BUSY",
            )

    def _begin(self, said: list[Message]) -> Turn:
        work = agent.Turn(self._agent, [*self._state.messages, *said], self._ids(), keep=self._keep)

        async def settle(end: End) -> End:
            """Keep what was said and added, however it ended."""
            state = self._changed([*self._state.messages, *said, *work.added], end.total_usage)
            try:
                await self._store(state)
            except Exception as error:  # noqa: BLE001 - else nobody would ever be told how the turn ended
                return t.TurnError(error=self._remembered(state, error), total_usage=end.total_usage)
            return end

        self._turn = Turn(work, said, settle, self._hear(self._state).tell)
        return self._turn

    def _ids(self) -> Callable[[], str]:
        """Return what gives messages of the model ids that no message of the session has."""
        numbers = count(len(self._state.messages) + 1)
        return lambda: f"{self.id}.{next(numbers)}"

    async def _keep(self, text: str) -> str:
        return (await self._artifacts.write_text(self.id, "result", text)).path

    def _changed(self, messages: list[Message], used: t.Usage) -> t.SessionState:
        totals = self._state.usage_totals or t.NOTHING
        return msgspec.structs.replace(
            self._state, messages=messages, usage_totals=totals.plus(used), updated_at=int(time.time() * 1000)
        )

    # --- keeping it -----------------------------------------------------------------------------------

    async def _save(self, state: t.SessionState) -> None:
        # Shielded: a save that was cancelled may be done all the same, and the next one would be refused.
        await asyncio.shield(self._repository.save(state, self._stored))
        self._state = self._stored = state

    async def _store(self, state: t.SessionState) -> None:
        """Save. What another writer keeps out of the file becomes a session of its own, which the error names."""
        try:
            await self._save(state)
        except (Conflict, UnusableSession) as error:
            self._kept_as = kept = await asyncio.shield(self._copied(state))
            raise type(error)(
                f"{error.message} The turn, with all that was said before it, is kept as the session {kept}.",
                details={"kept_as": kept},
            ) from None

    async def _copied(self, state: t.SessionState) -> str:
        """Store a state as a new session, with its artifacts. Return the id."""
        copy_id = f"{state.id[:73]}-{ulid(state.updated_at, secrets.randbits(80))}"
        await self._artifacts.copy(state.id, copy_id)
        try:
            await self._repository.create(msgspec.structs.replace(state, id=copy_id))
        except BaseException:
            await self._artifacts.delete(copy_id)
            raise
        return copy_id

    def _remembered(self, state: t.SessionState, error: Exception) -> ErrorInfo:
        """Go on from a turn that could not be stored, so that the next save has it. Return the error that says so."""
        self._state = state
        if not isinstance(error, CodeSDKError):
            error = StorageFailure(f"The turn could not be stored: {type(error).__name__}: {error}.")
        if self._kept_as is not None:
            return error.info()
        words = f"{error.message} The turn is kept in memory, and is stored with the next one, or on closing."
        return msgspec.structs.replace(error.info(), message=words)


def message_of(message: Ask) -> Message:
    """Return what a session is sent as a message. Raise `InvalidRequest` if there is nothing in it."""
    role: Role = "user"
    content: list[ContentBlock]
    if isinstance(message, t.TurnRequest):
        content, role = message.content, message.role
    else:
        content = [Text(text=message)] if isinstance(message, str) else list(message)
    if role != "user" or not content or any(isinstance(block, Text) and not block.text for block in content):
        raise InvalidRequest("A turn begins with a user message that says something.")
    return checked(Message(role=role, content=content))


def _failure(error: ErrorInfo) -> CodeSDKError:
    return TaskFailure(error.message, code=error.code, retryable=error.retryable, details=error.details)
