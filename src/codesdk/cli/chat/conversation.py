"""A session in front of a person: what is typed goes to it, what happens in it is shown, whoever did it.

Works through the public handles alone. A session is made with the first message; until then there is only what it
will be made with.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol

import msgspec

from codesdk.cli.chat.actions import Actions
from codesdk.cli.chat.answers import Answers
from codesdk.cli.chat.facts import Facts
from codesdk.cli.chat.message import message_of
from codesdk.cli.chat.paint import Painter
from codesdk.cli.chat.pastes import Pastes
from codesdk.cli.chat.story import Story
from codesdk.cli.chat.waiting import Desk
from codesdk.cli.target.lookup import short
from codesdk.cli.view.safe import one_line
from codesdk.contract.errors import CodeSDKError, InvalidRequest, NotFound
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import Message
from codesdk.contract.records import SessionRow
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import PermissionMode
from codesdk.handles import Handles, Session
from codesdk.script import Script

PAST_TASKS = 3
PAST_EVENTS = 3_000
"""So much of a session's past is shown when it is opened."""
TITLE_CHARS = 60


class Front(Protocol):
    """What shows it."""

    def show(self, lines: list[str]) -> None: ...

    def refresh(self) -> None: ...

    def put(self, text: str) -> None: ...

    def leave(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...

    @property
    def columns(self) -> int: ...


class New(msgspec.Struct, kw_only=True):
    """What the next session is made with."""

    workspace: str
    runtime: str | None = None
    model: str | None = None
    mode: PermissionMode = "ask"
    settings: SessionSettings = SessionSettings()
    script: Script | None = None


class Conversation:
    """One session after another. `me` is the name of this terminal in their logs."""

    def __init__(
        self, sdk: Handles, me: str, front: Front, new: New, painter: Painter, pastes: Pastes
    ) -> None:
        self.sdk = sdk
        self.me = me
        self.front = front
        self.new = new
        self.paint = painter
        self.pastes = pastes
        self.session: Session | None = None
        self.workspace = new.workspace
        """Where the files are that are named: that of the session, or of the next one."""
        self.desk = Desk(asyncio.get_running_loop().time)
        self.facts = self._no_facts()
        self.story = self._no_story()
        self.answers = Answers(self)
        self.actions = Actions(self)
        self.steers = True
        self.leaving = 0
        self.sending = 0
        """How many lines are on their way."""
        self._following: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[Any]] = set()
        self._order = asyncio.Lock()

    # --- sessions -----------------------------------------------------------------------------------

    async def open(self, session_id: str) -> None:
        """Go on in a stored session: show the end of its past, then what happens."""
        session = await self.sdk.session(session_id)
        row = await session.info()
        await self.close()
        self.session, self.workspace = session, row.workspace
        self.facts = self._no_facts()
        self.facts.read(row)
        await self.learn()
        head = await session.service.head(session_id)
        after = await _past(session, head)
        self.say(f"{_title(row)} · {row.runtime} · session {short(session_id)} · {row.workspace}")
        if after:
            self.say(f"what came before: codesdk transcript {short(session_id)}")
        self._following = asyncio.create_task(self._follow(session, after, head))
        if after >= head:
            await self.settle()

    def start_new(self) -> None:
        """Leave the session as it is; the next message makes another one."""
        if self._following is not None:
            self._following.cancel()
        self.session, self._following, self.workspace = None, None, self.new.workspace
        self.facts, self.story = self._no_facts(), self._no_story()
        self.desk = Desk(asyncio.get_running_loop().time)
        self.front.refresh()

    async def made(self, words: str) -> Session:
        """Return the session, made now if there is none."""
        if self.session is not None:
            return self.session
        new = self.new
        session = await self.sdk.create_session(
            runtime=new.runtime,
            workspace=new.workspace,
            model=new.model,
            permission_mode=new.mode,
            title=_title_of(words),
            settings=new.settings,
            plays=new.script,
        )
        self.session = session
        self.facts.read(await session.info())
        self._following = asyncio.create_task(self._follow(session, 0, 0))
        return session

    async def learn(self) -> None:
        """Find out what comes with the runtime: whether it can be steered, and what plugins add to minicode.

        Of one that this process does not know, it is tried whether it can be steered.
        """
        from codesdk.cli.chat.commands import COMMANDS
        from codesdk.runtimes import create_runtime

        if self.facts.runtime == "minicode":
            await self.actions.load(COMMANDS)
        self.steers = True
        with contextlib.suppress(CodeSDKError):
            self.steers = create_runtime(self.facts.runtime).capabilities().supports_steer

    def required(self) -> Session:
        """Return the session. Raise if there is none yet."""
        if self.session is None:
            raise InvalidRequest("There is no session yet. The first message makes one.")
        return self.session

    async def close(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
            self._following = None
        self.story = self._no_story()
        self.desk = Desk(asyncio.get_running_loop().time)

    async def settle(self) -> None:
        """Ask what is open, and what was spent."""
        if (session := self.session) is None:
            return
        with contextlib.suppress(CodeSDKError):
            self.desk.settle(await session.approvals())
            self.facts.read(await session.info())
        self.front.refresh()

    # --- what happens -------------------------------------------------------------------------------

    async def _follow(self, session: Session, after: int, head: int) -> None:
        try:
            async with contextlib.aclosing(session.events(after)) as events:
                async for event in events:
                    await self._take(event, head)
            ended = "The connection to the sessions has ended. Leave, and start the chat again."
            await self._lost(session, CodeSDKError(ended))
        except CodeSDKError as error:
            await self._lost(session, error)
        except Exception as error:  # noqa: BLE001 - a bug must end the chat, not its pictures
            self.front.fail(error)

    async def _lost(self, session: Session, error: CodeSDKError) -> None:
        """Say why the session cannot be followed any more, or worked in."""
        if session is not self.session:
            return
        try:
            await session.info()
        except NotFound:
            self.say("This session was deleted. The next message begins a new one.", "red")
            if self._following is asyncio.current_task():
                self._following = None  # it is this one that ends
            self.start_new()
            await self.learn()
        except CodeSDKError as worse:
            self.say(worse.message, "red")
        else:
            self.say(error.message, "red")

    async def _take(self, event: Event, head: int) -> None:
        before = self.facts.runtime
        self.facts.take(event)
        if self.facts.runtime != before:
            await self.learn()
        try:
            lines = await self.story.take(event)
        except NotFound as error:  # an artifact that retention has removed
            lines = self.story.note(error.message)
        self.desk.take(event)
        self.front.show(lines)
        # What is open is asked once the past is told: a question is shown with what it is about.
        if event.seq == head or (event.type in TERMINAL_TYPES and event.seq > head):
            await self.settle()

    # --- what is typed ------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None], typed: str = "") -> None:
        """Do something, one thing after another. An error is shown, and what was typed is given back."""
        task = asyncio.create_task(self._one(work, typed))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _one(self, work: Coroutine[Any, Any, None], typed: str) -> None:
        self.sending += 1
        try:
            async with self._order:
                await work
        except CodeSDKError as error:
            if isinstance(error, NotFound) and self.session is not None:
                await self._lost(self.session, error)
            else:
                self.say(error.message, "red")
            if typed:
                self.front.put(typed)
        except OSError as error:
            self.say(f"{error.strerror or error}: {error.filename or ''}", "red")
            if typed:
                self.front.put(typed)
        except Exception as error:  # noqa: BLE001 - a bug must end the chat, not what was typed
            self.front.fail(error)
        finally:
            self.sending -= 1
            self.front.refresh()

    async def send(self, typed: str, *, queue: bool = False) -> None:
        """Send a message: to the running task where the runtime takes it, else as a task of its own."""
        text = self.pastes.whole(typed)
        session = await self.made(text)
        message = await message_of(text, Path(self.workspace), self.sdk.put_artifact)
        if self.facts.task_id is None or queue or not await self._steered(session, message):
            await session.start([message])

    async def _steered(self, session: Session, message: Message) -> bool:
        try:
            await session.steer([message])
        except CodeSDKError as error:
            if error.retryable:
                raise
            self.steers = self.steers and not isinstance(error, InvalidRequest)
            return False  # the runtime cannot, or the task has just ended: it is queued
        return True

    def stop(self) -> None:
        """Stop the running task."""
        self.facts.stopping = True
        self.spawn(self.required().stop("stopped at the terminal"))

    def say(self, text: str, style: str = "dim") -> None:
        """Show a remark of ours."""
        self.front.show(self.story.note(text, style))

    def show(self, lines: list[str]) -> None:
        """Show lines that are painted."""
        self.front.show([*self.story.note_break(), *lines])

    def _no_facts(self) -> Facts:
        return Facts(self.new.runtime or "minicode", self.new.model, self.new.mode)

    def _no_story(self) -> Story:
        return Story(self.paint, self.sdk.read_artifact, self.me, self._know)

    def _know(self, tool_call_id: str, given: Any) -> None:
        self.desk.knows(tool_call_id, given)  # the desk changes with the session


async def _past(session: Session, head: int) -> int:
    """Return the seq after which a session is shown: the beginning of its last tasks, unless that is long ago."""
    rows = await session.tasks(limit=PAST_TASKS)
    starts = [row.started_seq or row.queued_seq or head for row in rows]
    return max(min(starts, default=1) - 1, head - PAST_EVENTS, 0) if head else 0


def _title(row: SessionRow) -> str:
    return f"“{one_line(row.title, TITLE_CHARS)}”" if row.title else "untitled"


def _title_of(words: str) -> str | None:
    """Return a title for a session that begins with these words."""
    flat = one_line(words[: 4 * TITLE_CHARS])
    return flat if len(flat) <= TITLE_CHARS else flat[:TITLE_CHARS].rsplit(" ", 1)[0] + "…"
