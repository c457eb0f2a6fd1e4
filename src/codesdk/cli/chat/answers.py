"""Keys and lines that answer what a session asks → its panel, and the answers on their way."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from rich.text import Text

from codesdk.cli.chat.proposal import proposal_lines
from codesdk.cli.chat.waiting import Waiting, time_left
from codesdk.cli.view.gist import brief
from codesdk.cli.view.pieces import ASKS, chosen
from codesdk.cli.view.safe import one_line
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.tools import Question

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation

DENIED = "Denied at the terminal."
DECLINED = "Declined at the terminal."


class Answers:
    """What is asked in a conversation, as it is shown and answered."""

    def __init__(self, chat: "Conversation") -> None:
        self._chat = chat
        self._proposed: tuple[str, int, list[Text]] = ("", 0, [])

    def panel(self, most: int, typed: str) -> list[str]:
        """Return what is in front, in at most so many lines."""
        one = self._chat.desk.front
        if one is None:
            return []
        return (
            self._question(one, one.question, most, typed)
            if one.question
            else self._approval(one, most, typed)
        )

    def press(self, key: str) -> None:
        """Take a key that answers what is in front."""
        desk, one = self._chat.desk, self._chat.desk.front
        if one is None:
            return
        match desk.verb(key):
            case "approve" | "always" as verb:
                self._deliver(one, self._approve(one, always=verb == "always"))
            case "deny":
                self._deliver(one, self._deny(one, DENIED))
            case "reason":
                desk.reason_for = one
            case "show":
                self._chat.show(self._chat.paint.others(proposal_lines(desk.input_of(one))))
            case None:
                pass

    def line(self, typed: str) -> bool:
        """Take a line that is a reason or the answer to a question. Return whether it was one."""
        desk = self._chat.desk
        if (denied := desk.reason_for) is not None:
            self._deliver(denied, self._deny(denied, typed.strip() or DENIED), typed)
            return True
        one = desk.front
        if one is None or one.question is None or not desk.takes_line(typed):
            return False
        text = chosen(one.question, typed)
        if text or one.question.optional:
            self._deliver(one, self._answer(one, text), typed)
        else:
            self._deliver(one, self._deny(one, DECLINED))
        return True

    def _approval(self, one: Waiting, most: int, typed: str) -> list[str]:
        desk, paint = self._chat.desk, self._chat.paint
        given = desk.input_of(one)
        tool = one_line(one.summary.partition(" ")[0], 60)
        words = one.summary if given is None or one.tool_call_id is None else f"{tool}  {brief(given, 200)}"
        lines = paint.ours(self._head(one, words), one=True)
        if rule := desk.rule_of(one):
            lines += paint.ours(f"  because of {one_line(rule, 200)}", "yellow")
        room = max(most - len(lines) - 2, 1)
        shown, cut = self._proposal(one, given, room)
        lines += shown
        if cut:
            lines += paint.ours("  … there is more: s shows all of it", "yellow", one=True)
        return lines + self._keys(typed)

    def _proposal(self, one: Waiting, given: Any, room: int) -> tuple[list[str], bool]:
        """Return the beginning of what a call would do, and whether that is not all of it.

        Drawn again with each key, so of a long one only as much is looked at as has room.
        """
        if self._proposed[:2] != (one.approval_id, id(given)):
            self._proposed = (one.approval_id, id(given), proposal_lines(given))
        proposed = self._proposed[2]
        most = room * self._chat.paint.width
        beginning = [text[:most] if len(text) > most else text for text in proposed[:room]]
        painted = self._chat.paint.others(beginning)
        cut = len(proposed) > room or len(painted) > room or any(len(text) > most for text in proposed[:room])
        return painted[: room - 1] if cut else painted, cut

    def _keys(self, typed: str) -> list[str]:
        desk, paint = self._chat.desk, self._chat.paint
        if desk.reason_for is not None:
            return paint.ours("type why, then Enter; Ctrl-C goes back", "yellow", one=True)
        if typed:
            return paint.ours(
                "the keys answer once the line is empty: Enter sends it, Ctrl-U clears it", "yellow", one=True
            )
        if not desk.takes_keys(typed):
            return paint.ours("…", "dim")
        line = Text()
        for key, meaning in desk.choices():
            line.append(f"{key} ", "bold yellow").append(f"{meaning} · ", "dim")
        line.right_crop(3)
        return paint.ours(line, one=True)

    def _question(self, one: Waiting, question: Question, most: int, typed: str) -> list[str]:
        paint = self._chat.paint
        asker = f"{one_line(question.asker, 60)} asks" if question.asker else "The model asks"
        lines = paint.ours(self._head(one, asker), one=True)
        body = paint.others(Text(line, "bold") for line in question.text.split("\n"))
        options = [f"{number}  {one_line(option, 200)}" for number, option in enumerate(question.options, 1)]
        body += paint.others(Text(option, no_wrap=True, overflow="ellipsis") for option in options)
        room = max(most - len(lines) - 1, 1)
        lines += body if len(body) <= room else [*body[: room - 1], *paint.ours("  …", "dim")]
        if not self._chat.desk.takes_line(typed):
            words = (
                "once the line is empty, it is for the answer: Enter sends it, Ctrl-U clears it"
                if typed
                else "…"
            )
        else:
            number = " or a number" if question.options else ""
            nothing = "an empty one is an answer, too" if question.optional else "an empty one declines"
            words = f"type your answer{number}, then Enter; {nothing}"
        return lines + paint.ours(words, "yellow", one=True)

    def _head(self, one: Waiting, words: str) -> Text:
        count = len(self._chat.desk)
        more = f" · 1 of {count}" if count > 1 else ""
        # The time first: it must not be cut off by what a model wrote.
        return Text.assemble(
            (f"{ASKS} ", "bold yellow"),
            (f"{time_left(one)}{more} · ", "yellow"),
            (one_line(words, 300), "bold"),
        )

    def _deliver(self, one: Waiting, answer: Coroutine[Any, Any, None], typed: str = "") -> None:
        self._chat.desk.hold(one)
        self._chat.spawn(self._tell(one, answer), typed)

    async def _tell(self, one: Waiting, answer: Coroutine[Any, Any, None]) -> None:
        """Deliver an answer. If it is not taken, what asks is asked about again, unless it is closed."""
        try:
            await answer
        except CodeSDKError:
            self._chat.desk.release(one)
            await self._chat.settle()
            raise
        if self._chat.facts.task_id is None:
            self._chat.say("The task that asked was interrupted: /resume continues with this answer.")

    async def _approve(self, one: Waiting, *, always: bool) -> None:
        scope = "session" if always else "once"
        await self._chat.required().approve(
            one.named, scope=scope, attempt=one.attempt, input_hash=one.input_hash
        )

    async def _deny(self, one: Waiting, reason: str) -> None:
        await self._chat.required().deny(one.named, reason, attempt=one.attempt, input_hash=one.input_hash)

    async def _answer(self, one: Waiting, text: str) -> None:
        await self._chat.required().answer(one.approval_id, text)
