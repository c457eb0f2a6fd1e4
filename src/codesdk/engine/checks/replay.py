"""A stored log played again through a fresh engine core: the same events must come out, byte for byte.

Each stored event that starts something (a draft, a decision, a command) is given to the function that wrote
it, with the recorded times and ids; what that function writes is compared with the stored events.
"""

from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.ports import Blobs, EventLog
from codesdk.contract.records import MessageRow, StoredFrame
from codesdk.contract.settings import SessionSettings
from codesdk.engine.checks.replay_steps import Tape, play
from codesdk.engine.log.journal import LOCAL, Journal
from codesdk.engine.log.loading import load_state, read_transcript
from codesdk.engine.log.state import ActiveTask, SessionState
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.context import compile_delta, compile_input
from codesdk.engine.tasks.window import Window


class _Range(msgspec.Struct):
    first: int


class _Manifest(msgspec.Struct):
    messages: _Range


class Difference(msgspec.Struct, frozen=True):
    """A place where the replayed session is not the stored one."""

    seq: int | None
    message: str


class Replay:
    """One replay of one session."""

    def __init__(self, log: EventLog, blobs: Blobs, session_id: str) -> None:
        self._log = log
        self._blobs = blobs
        self._session_id = session_id
        self._tape = Tape(log, session_id)
        self._state = SessionState(session_id=session_id, principal=LOCAL)
        self._journal = Journal(self._state, self._tape, self._compare, sender=self._tape.sender)
        self._window: Window | None = None
        self._rows: list[MessageRow] = []
        self.events: int = 0
        self.differences: list[Difference] = []

    async def run(self) -> None:
        """Play the whole log. Afterwards `differences` holds what did not come out the same."""
        while await self._tape.fill():
            before = self.events
            event = self._tape.peek()
            assert event is not None, "the tape was just filled"
            self._align(event)
            try:
                await self._step(event)
            except (CodeSDKError, KeyError, StopIteration, AssertionError, ValueError) as error:
                self._differ(event.seq, f"{event.type} cannot be derived again: {error}")
            # Nothing was written for it, so it is skipped: one fault must not shift all that follow.
            if self.events == before:
                self._tape.next()
                self.events += 1
                self._state.seq = event.seq
        self.differences = [*map(_unreadable, self._tape.damaged), *self.differences]
        await self._compare_rows()

    def _align(self, event: Event) -> None:
        """Take over what no event states: the principal, and the runtime's session id and model."""
        if event.seq == 1 and event.trace.user_id is not None:
            self._state.principal = event.trace.user_id
            self._journal = Journal(self._state, self._tape, self._compare, sender=self._tape.sender)
        if event.runtime.runtime_session_id != self._state.runtime_session_id or (
            event.runtime.model != self._state.model
        ):
            self._journal.identify(event.runtime.model, event.runtime.runtime_session_id)

    def _compare(self, event: Event, frame: bytes) -> None:
        stored = self._tape.next()
        self.events += 1
        if stored is None:
            self._differ(event.seq, f"replay writes a {event.type} that is not stored")
        elif frame != stored[1]:
            self._differ(stored[0].seq, _describe(stored[0], event))

    def _differ(self, seq: int | None, message: str) -> None:
        self.differences.append(Difference(seq, message))

    async def _step(self, event: Event) -> None:
        """Give one stored event to the function that wrote it."""
        payload = event.payload
        if isinstance(payload, ev.SessionCreated):
            await self._create(payload)
        elif isinstance(payload, ev.ModelInput) and payload.capture == "compiled":
            await self._compile(event, payload)
        else:
            play(self._tape, self._journal, event)

    async def _create(self, payload: ev.SessionCreated) -> None:
        lifecycle.create(self._journal, payload)
        if payload.parent is not None:
            rows = await self._log.messages(
                self._session_id, before=payload.parent.messages, limit=payload.parent.messages
            )
            self._rows.extend(rows)

    async def _compile(self, event: Event, payload: ev.ModelInput) -> None:
        """Compile the input again from the replayed transcript alone.

        What a runtime still had of its own is its word: from which message on it was told is read from the record.
        """
        task = self._state.task
        assert task is not None, "an input is compiled for a task"
        self._collect_rows()
        stored = await self._blobs.get(payload.input_ref.content_hash)
        tools, config = payload.tool_manifest, payload.runtime_config
        if payload.context_window.strategy == "delta":
            first = msgspec.json.decode(stored, type=_Manifest).messages.first
            rows, state = self._rows[first:], self._state
            compiled = compile_delta(rows, state.messages, state.chain, self._budget, tools, config)
        else:
            window = self._window_of(task)
            new = 0 if task.asked else window.since(task.started_seq)
            compiled = compile_input(window, tools, config, new, task.asked)
        data = msgspec.json.encode(compiled.manifest)
        if data != stored:
            self._differ(event.seq, "the compiled input is not the stored one")
        self._journal.write(
            msgspec.structs.replace(
                payload, input_hash=hash_json(compiled.manifest), context_window=compiled.context_window
            )
        )

    @property
    def _budget(self) -> int:
        return msgspec.convert(self._state.config.settings, type=SessionSettings).context_budget_tokens

    def _window_of(self, task: ActiveTask) -> Window:
        """Return the window that a task's input was compiled from. One for all tasks, as long as it serves."""
        compacted, window = self._state.context.compacted, self._window
        runtime = self._state.runtime_name
        if task.summarizes_before is not None:
            window = Window(self._session_id, runtime, self._budget, compacted, task.summarizes_before)
            window.replace(self._rows[: task.summarizes_before])
            return window
        if window is None or not window.is_for(runtime, self._budget, compacted):
            window = self._window = Window(self._session_id, runtime, self._budget, compacted)
            window.replace(self._rows)
        else:
            window.extend(self._rows[window.next_index :])
        return window

    def _collect_rows(self) -> None:
        if changes := self._journal.take_changes():
            self._rows.extend(changes.messages)

    async def _compare_rows(self) -> None:
        """Compare the transcript and the state with what the store keeps of them."""
        self._collect_rows()
        stored = await read_transcript(self._log, self._session_id)
        if stored != self._rows:
            pairs = zip(stored, self._rows, strict=False)
            index = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(stored), len(self._rows)))
            self._differ(None, f"the stored transcript differs from the replayed one at message {index}")
        kept = await load_state(self._log, self._session_id, self._state.principal)
        if not self.differences and kept != self._state:
            self._differ(None, "the stored state of the session differs from the replayed one")


def _unreadable(frame: StoredFrame) -> Difference:
    return Difference(frame.seq, f"cannot be read: {frame.damage}")


def _describe(stored: Event, replayed: Event) -> str:
    if stored.type != replayed.type:
        return f"stored is a {stored.type}, replay writes a {replayed.type}"
    one: dict[str, Any] = msgspec.to_builtins(stored)
    two: dict[str, Any] = msgspec.to_builtins(replayed)
    fields = [name for name in one | two if one.get(name) != two.get(name)]
    return f"{stored.type} comes out different in {', '.join(fields) or 'its encoding'}"


async def replay_session(log: EventLog, blobs: Blobs, session_id: str) -> tuple[int, list[Difference]]:
    """Replay a stored session. Return how many events it has and what did not come out the same."""
    replay = Replay(log, blobs, session_id)
    await replay.run()
    return replay.events, replay.differences
