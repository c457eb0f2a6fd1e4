"""A task, from its start to its terminal event → events shown as they come, and questions answered."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast

from codesdk.cli.interrupts import Interrupts
from codesdk.cli.view.out import ReaderGone, write_encoded
from codesdk.contract.errors import CodeSDKError, InvalidRequest, StorageFailure
from codesdk.contract.events import TERMINAL_TYPES, ApprovalRequested, Event
from codesdk.contract.runtime import Runtime
from codesdk.contract.service import Published
from codesdk.handles import Handles, Session, Task
from codesdk.runtimes import resolve

if TYPE_CHECKING:
    from codesdk.cli.view.policy_stdio import PolicyView
    from codesdk.script import Script

Answering = Literal["terminal", "others", "nobody"]
"""Who answers questions: a person here, a second terminal, or nobody, so that they are denied."""

Answer = Callable[[Task, ApprovalRequested], Awaitable[None]]
"""Answers a question. Must tolerate that somebody else was faster."""

NOBODY = (
    "Nobody can be asked: this command runs without a terminal. "
    "Go on without it, or say in your answer what you would have done."
)


class View(Protocol):
    """Shows events as they come."""

    async def show(self, items: Sequence[Published]) -> None: ...

    async def remark(self, text: str) -> None: ...


class JsonView:
    """One event per line, exactly as it is stored, and nothing else."""

    async def show(self, items: Sequence[Published]) -> None:
        """Write a batch."""
        await asyncio.to_thread(write_encoded, [item.frame for item in items])

    async def remark(self, text: str) -> None:
        """Keep quiet."""


class Setting(NamedTuple):
    """How a task is shown and who answers its questions."""

    as_json: bool
    answering: Answering
    hint: str
    """The options that follow `codesdk` in commands that a person is told to type."""
    fail_on_denied: bool = False
    """Whether a task with denied calls counts as one that failed."""
    prints_data: bool = False
    """Whether stdout is for the result that the task was asked for; then all else is shown on stderr."""
    policy_stdio: bool = False
    """Whether questions are put to whoever reads stdout, and answered over stdin (docs/policy-channel.md)."""

    @property
    def is_quiet(self) -> bool:
        """Whether stdout is for programs."""
        return self.as_json or self.policy_stdio


def choose_answering(as_json: bool, interactive: bool) -> Answering:
    """Return who answers: a person if stdin and stdout are a terminal, else others if that is asked for."""
    if not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        return "terminal"
    return "others" if interactive else "nobody"


class Playing(NamedTuple):
    """What stands in for a model: runtimes to open the SDK with, or a script that the gateway plays."""

    runtimes: Mapping[str, Runtime]
    plays: "Script | None" = None
    script: "Script | None" = None
    """What one of the runtimes plays."""


def scripted(runtime: str | None, script: str | None) -> Playing:
    """Return what plays a script, loaded and checked: the scripted runtime, or the model of any other."""
    if runtime is None or resolve(runtime) != "scripted":
        return Playing({}, None if script is None else _load(script))
    if script is None:
        raise InvalidRequest(
            "The scripted runtime plays a script in place of a model: give it one with --script FILE."
            " `codesdk demo` shows one at work."
        )
    from codesdk.runtimes import ScriptedRuntime

    loaded = _load(script)
    return Playing({"scripted": ScriptedRuntime(loaded)}, script=loaded)


def _load(path: str) -> "Script":
    from codesdk.script import load_script

    return load_script(path)


async def work(
    sdk: Handles,
    session: Session,
    begin: Callable[[], Awaitable[Task]],
    setting: Setting,
    interrupts: Interrupts,
    *,
    after: int,
    answer: Answer | None = None,
) -> Event:
    """Begin a task and show the session's events after a seq until the task's terminal one. Return that.

    `answer` answers the questions in place of a person; without it they are denied if there is nobody to ask.
    """
    if answer is None and setting.answering == "nobody":
        answer = _refuse
    async with _view(sdk, session, setting) as view:
        task = await begin()
        stopping: set[asyncio.Task[None]] = set()
        interrupts.on_stop = lambda: stopping.add(asyncio.create_task(_stop(task, view)))
        if setting.policy_stdio:
            cast("PolicyView", view).end_with(interrupts.on_stop)
        try:
            return await _follow(task, view, after, answer)
        finally:
            interrupts.on_stop = _nothing  # a late Ctrl-C must not cut off the last output
            if stopping:
                await asyncio.wait(stopping)


async def _follow(task: Task, view: View, after: int, answer: Answer | None) -> Event:
    async with contextlib.aclosing(
        _batches(task.session.service.follow(task.session.id, after), task.id)
    ) as batches:
        async for batch in batches:
            await view.show(batch)
            for item in batch:
                if answer is not None and isinstance(item.event.payload, ApprovalRequested):
                    await answer(task, item.event.payload)
            if _ends(batch[-1].event, task.id):
                return batch[-1].event
    raise StorageFailure("The session's log was closed before its task ended.")


async def _batches(batches: AsyncGenerator[list[Published]], task_id: str) -> AsyncGenerator[list[Published]]:
    """Cut the last batch after the terminal event."""
    async with contextlib.aclosing(batches):
        async for batch in batches:
            end = next((index for index, item in enumerate(batch) if _ends(item.event, task_id)), None)
            yield batch if end is None else batch[: end + 1]


def _ends(event: Event, task_id: str) -> bool:
    return event.type in TERMINAL_TYPES and event.trace.task_id == task_id


async def _stop(task: Task, view: View) -> None:
    try:
        await asyncio.gather(
            view.remark("stopping; Ctrl-C again quits at once"), task.stop("interrupted at the terminal")
        )
    except (CodeSDKError, ReaderGone):
        pass  # it ended by itself, or nobody is watching any more


async def _refuse(task: Task, question: ApprovalRequested) -> None:
    try:
        await task.deny(question.tool_call_id or question.approval_id, NOBODY, attempt=question.attempt)
    except CodeSDKError:
        pass  # somebody else was faster


@asynccontextmanager
async def _view(sdk: Handles, session: Session, setting: Setting) -> AsyncGenerator[View]:
    if setting.policy_stdio:
        from codesdk.channel import open_channel
        from codesdk.cli.view.policy_stdio import PolicyView

        async with open_channel() as channel:
            yield PolicyView(channel, session, sdk.read_artifact)
        return
    if setting.as_json:
        yield JsonView()
        return
    from codesdk.cli.view.live import LiveView
    from codesdk.cli.view.screen import Screen

    async with Screen(err=setting.prints_data) as screen:
        asked = session if setting.answering == "terminal" else None
        hint = setting.hint if setting.answering == "others" else None
        view = LiveView(screen, sdk.read_artifact, hint, asked)
        try:
            async with view.spinner:
                yield view
        finally:
            if view.asker is not None:
                view.asker.close()


def _nothing() -> None:
    """Do nothing: the task is over, and the rest takes only a moment."""
