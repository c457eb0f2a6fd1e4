"""/sessions, /fork and /rewind: from one session to another."""

from typing import TYPE_CHECKING

from rich.text import Text

from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.view.gist import local_time
from codesdk.cli.view.safe import one_line
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import TaskStarted
from codesdk.contract.messages import text_of

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation
    from codesdk.contract.records import TaskRow

LISTED = 15


async def list_or_open(chat: "Conversation", words: str) -> None:
    """List the newest sessions, or continue the one that is named."""
    rows = await chat.sdk.sessions(limit=LISTED)
    if words:
        number = int(words) if words.isascii() and words.isdigit() and len(words) < 4 else 0
        chosen = rows[number - 1] if 0 < number <= len(rows) else await find_session(chat.sdk.service, words)
        await chat.open(chosen.session_id)
        return
    if not rows:
        raise InvalidRequest("There is no session yet. The first message makes one.")
    chat.say("/sessions N continues one of these:")
    lines: list[Text] = []
    for number, row in enumerate(rows, 1):
        here = "*" if chat.session is not None and chat.session.id == row.session_id else " "
        busy = " · working" if row.active_task_id else ""
        words = f"{row.title or 'untitled'} · {row.runtime}{busy} · {row.workspace}"
        head = f"{number:>3}{here} {short(row.session_id)} {local_time(row.updated_at):%b %d %H:%M} "
        lines.append(Text(head + one_line(words, 300), no_wrap=True, overflow="ellipsis"))
    chat.show(chat.paint.others(lines))


async def fork(chat: "Conversation", words: str) -> None:
    """Go on in a copy of the session, as it is now."""
    copy = await chat.required().fork(title=words or None)
    await chat.open(copy.id)
    chat.say("This is a copy. The other one stays as it was.")


async def rewind(chat: "Conversation", words: str) -> None:
    """List what was said, or go back to before one of these messages, in a copy of the session."""
    session = chat.required()
    said: list[tuple[TaskRow, str]] = []
    for row in reversed(await session.tasks(limit=100)):
        if row.started_seq is not None:
            started = (await session.event(row.started_seq)).payload
            if isinstance(started, TaskStarted) and started.messages:
                said.append((row, " ".join(text_of(message.content) for message in started.messages)))
    if not words:
        chat.say(
            "/rewind N goes back to before one of these, in a copy of the session. Files stay as they are."
        )
        chat.show(
            chat.paint.others(Text(f"{n:>3}  {one_line(text, 200)}") for n, (_, text) in enumerate(said, 1))
        )
        return
    number = int(words) if words.isascii() and words.isdigit() and len(words) < 6 else 0
    if not 0 < number <= len(said):
        raise InvalidRequest(f"There is no message {words[:20]}. /rewind lists them.")
    row, text = said[number - 1]
    before = (row.queued_seq or row.started_seq or 1) - 1
    copy = await session.fork(max(before, 1))
    await chat.open(copy.id)
    chat.say(
        "This is a copy that ends before that message, which is in the line again. Files stay as they are: /undo."
    )
    chat.front.put(text)
