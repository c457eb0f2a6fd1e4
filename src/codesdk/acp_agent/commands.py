"""Slash commands: what an editor offers in its prompt → actions on the session, answered with a line of text."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from codesdk.contract.actions import (
    ChangeSettings,
    CloseSession,
    CompactSession,
    ResumeSession,
    SteerTask,
    UndoChanges,
)
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.service import SessionService


class Done(NamedTuple):
    """What a command says, and the task that it started, if any: the turn lasts as long as that."""

    text: str = ""
    task_id: str | None = None


Run = Callable[[SessionService, str, str], Awaitable[Done]]


class Command(NamedTuple):
    """One command: its line in the editor's list, and what it does."""

    description: str
    run: Run
    hint: str | None = None


async def _compact(service: SessionService, session_id: str, words: str) -> Done:
    match words:
        case "" | "window":
            await service.execute(CompactSession(session_id=session_id))
            return Done("Compacted.")
        case "summary":
            row = await service.execute(CompactSession(session_id=session_id, strategy="summary"))
            return Done(task_id=row.active_task_id)
        case _:
            raise InvalidRequest("/compact leaves out the oldest turns; /compact summary sums them up first.")


async def _undo(service: SessionService, session_id: str, words: str) -> Done:
    report = await service.execute(UndoChanges(session_id=session_id, tool_call_id=words or None))
    refused = f" Not undone: {'; '.join(one.reason for one in report.refused)}" if report.refused else ""
    return Done(f"Put back: {', '.join(file.path for file in report.restored) or 'nothing'}.{refused}")


async def _resume(service: SessionService, session_id: str, words: str) -> Done:
    row = await service.execute(ResumeSession(session_id=session_id, message=words or None))
    return Done(task_id=row.task_id)


async def _steer(service: SessionService, session_id: str, words: str) -> Done:
    await service.execute(SteerTask(session_id=session_id, message=_some(words, "/steer")))
    return Done("Message delivered.")


async def _title(service: SessionService, session_id: str, words: str) -> Done:
    await service.execute(ChangeSettings(session_id=session_id, title=_some(words, "/title")))
    return Done("Title changed.")


async def _close(service: SessionService, session_id: str, _: str) -> Done:
    await service.execute(CloseSession(session_id=session_id, reason="closed in the editor"))
    return Done()


def _some(words: str, command: str) -> str:
    if not words:
        raise InvalidRequest(f"{command} needs a text.")
    return words


COMMANDS: dict[str, Command] = {
    "compact": Command("Give the runtime less of the conversation", _compact, "window or summary"),
    "undo": Command("Put files back as they were before tools changed them", _undo, "the id of one call"),
    "resume": Command("Resume a task that was interrupted", _resume, "a message to continue with"),
    "steer": Command("Add a message to the running task", _steer, "the message"),
    "title": Command("Give the session a title", _title, "the title"),
    "close": Command("End the session; its log stays", _close),
}


def available() -> list[AvailableCommand]:
    """Return the commands as an editor lists them."""
    return [
        AvailableCommand(name=name, description=command.description, input=_input(command.hint))
        for name, command in COMMANDS.items()
    ]


def command_in(text: str) -> tuple[Command, str] | None:
    """Return the command that a prompt is, and what follows it. Any other text that begins with / is for the model."""
    if not text.startswith("/"):
        return None
    name, _, words = text[1:].partition(" ")
    command = COMMANDS.get(name.strip())
    return None if command is None else (command, words.strip())


def _input(hint: str | None) -> AvailableCommandInput | None:
    return None if hint is None else AvailableCommandInput(root=UnstructuredCommandInput(hint=hint))
