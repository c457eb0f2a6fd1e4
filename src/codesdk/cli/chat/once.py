"""`codesdk chat -p`: one message → one answer on stdout, and the end.

Nobody is asked anything: what needs an answer is denied, and the model is told why. With `--policy-stdio`, whoever
wraps the command is asked instead.
"""

import contextlib
from typing import Any

from codesdk.cli.chat.connect import Opened
from codesdk.cli.chat.conversation import New
from codesdk.cli.exits import INTERRUPTED, OK
from codesdk.cli.interrupts import Interrupts
from codesdk.cli.view.out import write_json, write_line
from codesdk.cli.view.working import NOBODY, Setting, work
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import TERMINAL_TYPES, ApprovalRequested
from codesdk.contract.results import TaskResult
from codesdk.contract.tools import InteractionMode
from codesdk.handles import Session, Task


async def answer_once(
    opened: Opened,
    new: New,
    session_id: str | None,
    text: str,
    interrupts: Interrupts,
    *,
    as_json: bool,
    schema: dict[str, Any] | None,
) -> int:
    """Send a message, print the answer, and return the exit code."""
    session = await _session(opened, new, session_id, "non_interactive")
    result = await _answer(await session.start(text, output_schema=schema), interrupts)
    show(session, result, as_json=as_json)
    return INTERRUPTED if result.state == "stopped" else OK


async def answer_decided(
    opened: Opened, new: New, session_id: str | None, text: str, interrupts: Interrupts
) -> int:
    """Send a message, print what is said, have calls decided over the policy channel, and return the exit code."""
    session = await _session(opened, new, session_id, "interactive")
    setting = Setting(as_json=False, answering="others", hint="", policy_stdio=True)
    after = await session.service.head(session.id)
    ending = await work(opened.sdk, session, lambda: session.start(text), setting, interrupts, after=after)
    result = await session.task(ending.trace.task_id or "").result()
    return INTERRUPTED if result.state == "stopped" else OK


def show(session: Session, result: TaskResult, *, as_json: bool) -> None:
    """Print an answer: the data that a schema asked for, else the text alone; or all that is known of it."""
    if as_json:
        write_json({"session_id": session.id, "result": result})
    elif result.data is not None:
        write_json(result.data)
    elif result.text:
        write_line(result.text)


async def _session(opened: Opened, new: New, session_id: str | None, mode: InteractionMode) -> Session:
    if session_id is not None:
        return await opened.sdk.session(session_id)
    return await opened.sdk.create_session(
        runtime=new.runtime,
        workspace=new.workspace,
        model=new.model,
        permission_mode=new.mode,
        interaction_mode=mode,
        settings=new.settings,
        plays=new.script,
    )


async def _answer(task: Task, interrupts: Interrupts) -> TaskResult:
    import asyncio

    stopping: set[asyncio.Task[Any]] = set()
    interrupts.on_stop = lambda: stopping.add(asyncio.create_task(task.stop("interrupted at the terminal")))
    async with contextlib.aclosing(task.events()) as events:
        async for event in events:
            if isinstance(event.payload, ApprovalRequested):
                await _refuse(task, event.payload)
            if event.type in TERMINAL_TYPES:
                break
    return await task.result()


async def _refuse(task: Task, asked: ApprovalRequested) -> None:
    with contextlib.suppress(CodeSDKError):  # somebody else was faster
        await task.deny(asked.tool_call_id or asked.approval_id, NOBODY, attempt=asked.attempt)
