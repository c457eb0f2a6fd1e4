"""`codesdk rerun`: a recorded session → a new one with the same messages, its model's answers from the recording."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK, exit_of_ending
from codesdk.cli.interrupts import Interrupts
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.target.place import open_reader, open_sdk
from codesdk.cli.view.out import write_text
from codesdk.cli.view.safe import printable
from codesdk.cli.view.working import Setting, work
from codesdk.contract.codec import decode
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.events import (
    ApprovalRequested,
    Event,
    OutputCompleted,
    SessionCreated,
    TaskStarted,
    ToolCallApproved,
    ToolCallDenied,
)
from codesdk.contract.service import SessionReader
from codesdk.contract.settings import SessionSettings
from codesdk.handles import Handles, Session, Task
from codesdk.sdk import CodeSDK

NOT_RECORDED = "Denied: this call is not in the recording."
Decisions = dict[tuple[str, str], list[ToolCallApproved | ToolCallDenied]]
"""What was decided on the recorded calls, by tool and input, in order."""


class Recorded(NamedTuple):
    """What a recorded session was told, what was decided in it, and what its model said."""

    created: SessionCreated
    tasks: list[TaskStarted]
    decisions: Decisions
    outputs: list[Any]

    async def answer(self, task: Task, question: ApprovalRequested) -> None:
        """Answer a question as it was answered when the session was recorded."""
        decided = self.decisions[question.summary.partition(" ")[0], question.input_hash or ""]
        decision = decided.pop(0) if decided else None
        call = question.tool_call_id or question.approval_id
        try:
            if isinstance(decision, ToolCallApproved):
                await task.approve(call, reason="approved in the recorded session", attempt=question.attempt)
            else:
                reason = NOT_RECORDED if decision is None else decision.reason
                await task.deny(call, reason, attempt=question.attempt)
        except CodeSDKError:
            pass  # the task was stopped meanwhile


@click.command()
@session_argument()
@click.option("--workspace", metavar="DIR", help="The directory to work in. [default: the recorded one]")
@json_option("Print the new session's events, one a line, and nothing else.")
@click.pass_obj
def rerun(setup: Setup, session: str, workspace: str | None, as_json: bool) -> int:
    """Run a recorded session again: same runtime, same messages, the model's answers from the recording.

    No provider is asked. Tools run for real, and calls are answered as they were in SESSION, which must have
    been recorded (`codesdk run --record`). A request that differs from the recorded ones fails with the
    difference. Exits 1 if the model's messages are not the recorded ones.
    """
    setting = Setting(as_json, "nobody", setup.shown)
    return run_async(_rerun(setup, session, workspace, setting))


async def _rerun(setup: Setup, given: str, workspace: str | None, setting: Setting) -> int:
    async with open_reader(setup) as archive:
        row = await find_session(archive, given)
        recorded = await _read(archive, row.session_id)
    created = recorded.created
    async with open_sdk(setup, runs=True) as sdk:
        session = await sdk.create_session(
            runtime=created.runtime,
            workspace=workspace or created.workspace,
            permission_mode=created.permission_mode,
            title=f"rerun of {short(row.session_id)}",
            model=created.model,
            settings=msgspec.structs.replace(
                msgspec.convert(created.settings, type=SessionSettings), gateway="replay"
            ),
            recording=row.session_id,
        )
        return await _play(sdk, session, recorded, setting)


async def _play(sdk: Handles, session: Session, recorded: Recorded, setting: Setting) -> int:
    """Give a session the recorded messages, one task after the other, and compare the results."""
    with Interrupts() as interrupts:
        ending: Event | None = None
        for started in recorded.tasks:
            ending = await work(
                sdk,
                session,
                lambda given=started: session.start(given.messages, output_schema=given.output_schema),
                setting,
                interrupts,
                after=await sdk.service.head(session.id),
                answer=recorded.answer,
            )
            if ending.type != "task.completed":
                break
        assert ending is not None, "a recorded session has a task"
        again = await _read(sdk.service, session.id)
        problems = sdk.model_problems(session.id) if isinstance(sdk, CodeSDK) else ()
        return _judge(ending, again, recorded, problems, setting)


async def _read(archive: SessionReader, session_id: str) -> Recorded:
    created: SessionCreated | None = None
    tasks: list[TaskStarted] = []
    outputs: list[Any] = []
    decisions: Decisions = defaultdict(list)
    async for frame in archive.frames(session_id):
        payload: object = None if frame.damage is not None else decode(frame.data).payload
        if isinstance(payload, SessionCreated):
            created = payload
        elif isinstance(payload, TaskStarted) and payload.executed and payload.messages:
            tasks.append(payload)
        elif isinstance(payload, OutputCompleted):
            outputs.append(payload.content)
        elif isinstance(payload, ToolCallApproved | ToolCallDenied):
            decisions[payload.name, payload.input_hash].append(payload)
    if created is None or not tasks:
        raise InvalidRequest(f"Session {session_id} has no task to run again.")
    return Recorded(created, tasks, decisions, outputs)


def _judge(ending: Event, again: Recorded, recorded: Recorded, found: Sequence[str], setting: Setting) -> int:
    """Print whether the model said the same, and return the exit code."""
    same = again.outputs == recorded.outputs
    if not setting.as_json:
        words = "The model's messages are those of the recording." if same else _difference(again, recorded)
        problems = [f"\nproblem: {problem}" for problem in found]
        write_text(sys.stdout, "".join([*map(printable, problems), f"\n{words}\n"]))
    return exit_of_ending(ending) or (OK if same else FAILED)


def _difference(again: Recorded, recorded: Recorded) -> str:
    pairs = zip(again.outputs, recorded.outputs, strict=False)
    place = next(
        (i for i, (a, b) in enumerate(pairs) if a != b), min(len(again.outputs), len(recorded.outputs))
    )
    return (
        f"The model's messages differ from the recording at message {place + 1}:"
        f" {len(again.outputs)} now, {len(recorded.outputs)} recorded."
    )
