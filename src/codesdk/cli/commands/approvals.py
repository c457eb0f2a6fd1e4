"""`codesdk approvals`: what waits for an answer in all sessions, shown and answered one after the other."""

import asyncio
import sys
from typing import Any

import click
import msgspec
from rich.text import Text

from codesdk.cli.app import Setup
from codesdk.cli.commands.answer import deliver
from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.target.lookup import short, waiting
from codesdk.cli.target.place import open_reader
from codesdk.cli.view.ask import DENIED, Keyboard
from codesdk.cli.view.gist import local_time, since
from codesdk.cli.view.out import write_json
from codesdk.cli.view.pieces import (
    call_line,
    chosen,
    note,
    prompt_line,
    question_lines,
    replacement_lines,
    whole_input,
)
from codesdk.cli.view.safe import one_line
from codesdk.cli.view.screen import Screen
from codesdk.contract.actions import AnswerQuestion, ApproveCall, DenyCall
from codesdk.contract.codec import decode
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.events import ToolCallRequested
from codesdk.contract.records import ApprovalRow
from codesdk.contract.service import SessionReader

POLL_S = 1.0
_REQUESTED = b'"tool.call.requested"'
_CHOICES = (
    ("a", "approve"),
    ("A", "always in this session"),
    ("d", "deny [reason]"),
    ("s", "show"),
    ("n", "next"),
    ("q", "quit"),
)
_QUESTION_CHOICES = (("a", "answer: text or number"), ("d", "decline [reason]"), ("n", "next"), ("q", "quit"))


@click.command()
@click.option("--watch", is_flag=True, help="Keep watching for new ones, until Ctrl-C.")
@json_option("Print one approval per line as JSON, and ask nothing.")
@click.pass_obj
def approvals(setup: Setup, watch: bool, as_json: bool) -> int:
    """List what waits for an answer, in all sessions. At a terminal, show each one and ask for the answer.

    a approves a call, A approves the tool for the rest of its session, d with a reason denies it, s shows the
    whole input, n leaves it to others, q quits. A question is answered with a and the text, or the number of an option.
    """
    if not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        return run_async(_Answering(setup, watch).run())
    return run_async(_list(setup, watch, as_json))


async def _list(setup: Setup, watch: bool, as_json: bool) -> int:
    seen: set[str] = set()
    async with open_reader(setup) as place, Screen() as screen:
        while True:
            rows = [row for row in await waiting(place) if row.approval_id not in seen]
            seen |= {row.approval_id for row in rows}
            for row in rows:
                if as_json:
                    write_json(row)
                else:
                    screen.console.print(_line(row))
            if not watch:
                break
            await screen.send()
            await asyncio.sleep(POLL_S)
        if not seen and not as_json:
            screen.console.print("Nothing waits for an answer.")
    return OK


def _line(row: ApprovalRow) -> Text:
    named = f"{short(row.session_id)} {row.tool_call_id or row.approval_id}"
    return Text.assemble((named, "bold"), f"  {one_line(row.summary)}", (f"  {since(row)}", "dim"))


class _Answering:
    """One person at one terminal, answering everything that waits."""

    def __init__(self, setup: Setup, watch: bool) -> None:
        self._setup = setup
        self._watch = watch
        self._keyboard = Keyboard()
        self._done: set[str] = set()  # answered or skipped here: not shown again
        self._screen = Screen()
        self._console = self._screen.console

    async def run(self) -> int:
        async with self._screen, open_reader(self._setup) as place:
            said = False
            while True:
                rows = [row for row in await waiting(place) if row.approval_id not in self._done]
                if rows:
                    said = False
                    if not await self._handle(place, rows[0], len(rows)):
                        return OK
                    continue
                if not self._watch:
                    self._console.print("Nothing waits for an answer." if not self._done else "That was all.")
                    return OK
                if not said:
                    said = True
                    self._console.print(note("nothing waits; watching until Ctrl-C"))
                    await self._screen.send()
                await asyncio.sleep(POLL_S)

    async def _handle(self, place: SessionReader, row: ApprovalRow, count: int) -> bool:
        """Show one and take its answer. Return False to quit."""
        given = await self._introduce(place, row, count)
        while True:
            line = await self._ask(row)
            word, _, reason = ("q" if line is None else line.strip()).partition(" ")
            if word == "q":
                return False
            if word == "a" and row.question is not None and not reason.strip():
                continue  # an answer has words
            if word == "A" and row.question is not None:
                continue
            if word == "s" and row.tool_call_id is not None:
                for text in whole_input(given):
                    self._console.print(text)
            elif word in ("a", "A", "d", "n"):
                self._done.add(row.approval_id)
                if word != "n":
                    await self._answer(row, word, reason.strip())
                return True

    async def _introduce(self, place: SessionReader, row: ApprovalRow, count: int) -> Any:
        session = await place.session(row.session_id)
        title = f" {one_line(session.title, 60)}" if session.title else ""
        since = f" · since {local_time(row.requested_at):%H:%M:%S} · {count} waiting"
        self._console.print(Text.assemble((f"\n{short(row.session_id)}{title}", "bold"), (since, "dim")))
        if row.question is not None:
            for line in question_lines(row.question):
                self._console.print(line)
            return None
        if row.tool_call_id is None:
            self._console.print(note(row.summary, "yellow"))
            return None
        given = await _input_of(place, row)
        name = row.tool or row.summary.partition(" ")[0]
        self._console.print(call_line(name, given, self._console.width))
        for text in replacement_lines(given):
            self._console.print(text)
        return given

    async def _ask(self, row: ApprovalRow) -> str | None:
        about_call = row.tool_call_id is not None
        choices = [each for each in _CHOICES if about_call or each[0] not in ("A", "s")]
        if row.question is not None:
            choices = list(_QUESTION_CHOICES)
        self._console.print(prompt_line(choices), end="", soft_wrap=True)
        await self._screen.send()
        typed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._keyboard.listen(typed.set_result, fresh=False)
        try:
            return await typed
        finally:
            self._keyboard.ignore()

    async def _answer(self, row: ApprovalRow, word: str, reason: str) -> None:
        """Deliver an answer. If somebody else was faster, say so."""
        meant: dict[str, Any] = {
            "session_id": row.session_id,
            "tool_call_id": row.tool_call_id or row.approval_id,
            "attempt": row.attempt,
            "input_hash": row.input_hash,
        }
        action: ApproveCall | DenyCall | AnswerQuestion
        if word == "d":
            action = DenyCall(reason=reason or DENIED, **meant)
        elif row.question is not None:
            text = chosen(row.question, reason)
            action = AnswerQuestion(session_id=row.session_id, approval_id=row.approval_id, text=text)
        else:
            action = ApproveCall(scope="session" if word == "A" else "once", reason=reason or None, **meant)
        try:
            reached = (await deliver(self._setup, action)).reached
        except CodeSDKError as error:
            self._console.print(note(error.message, "yellow"))
            if isinstance(error, InvalidRequest):  # it still waits for an answer that fits
                self._done.discard(row.approval_id)
            return
        words = "denied" if word == "d" else "approved" if row.question is None else "answered"
        if reached == "stored" and word != "d":
            words += f"; it runs with: codesdk{self._setup.shown} resume {short(row.session_id)}"
        self._console.print(note(words))


async def _input_of(place: SessionReader, row: ApprovalRow) -> Any:
    """Return the input of a waiting call."""
    task = None if row.task_id is None else await place.task(row.task_id)
    first = 1 if task is None else task.started_seq or 1
    wanted = (row.tool_call_id or "").encode()
    async for frame in place.frames(row.session_id, after_seq=first - 1):
        # Search the bytes first: decoding every event of a long task would take too long.
        if frame.damage is not None or _REQUESTED not in frame.data or wanted not in frame.data:
            continue
        payload = decode(frame.data).payload
        if isinstance(payload, ToolCallRequested) and payload.tool_call_id == row.tool_call_id:
            if payload.input_ref is None:
                return payload.input
            return msgspec.json.decode((await place.read_artifact(payload.input_ref.artifact_id))[1])
    return None
