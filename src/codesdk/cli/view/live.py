"""A task's events as they are stored → what a person sees while it runs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from rich.text import Text

from codesdk.cli.target.lookup import short
from codesdk.cli.view.ask import Asker
from codesdk.cli.view.flow import Flow
from codesdk.cli.view.gist import gist, who
from codesdk.cli.view.pieces import (
    ASKS,
    BAD,
    GOOD,
    call_line,
    diff_lines,
    ending_line,
    note,
    question_lines,
    replacement_lines,
    result_lines,
)
from codesdk.cli.view.safe import one_line, printable
from codesdk.cli.view.screen import Screen
from codesdk.cli.view.spinner import Spinner
from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.contract.messages import Reasoning, text_of
from codesdk.contract.service import Published
from codesdk.handles import Session
from codesdk.policy import MODE

Load = Callable[[str], Awaitable[Any]]
"""Returns an artifact's bytes by its id."""

Teller = Callable[[Any, Any, Event], Awaitable[None]]
"""Shows one event: a method of the view, given the payload and the event."""

REASONING = "dim italic"
_HIDDEN_NOTICES = frozenset({"signal"})  # frames of a program that have no event of ours: too many to show


class LiveView:
    """The screen of one running task.

    With a `session`, questions are asked here. With a `hint`, the options that follow `codesdk` in commands,
    it shows how to answer them from elsewhere.
    """

    def __init__(self, screen: Screen, load: Load, hint: str | None, session: Session | None = None) -> None:
        self._screen = screen
        self._console = screen.console
        self._load = load
        self._hint = hint
        self.asker = Asker(screen, session, self._introduce) if session is not None else None
        self.spinner = Spinner(screen, self._doing)
        self._flow: Flow | None = None
        self._flow_style = ""
        self._pending: list[str] = []
        self._section = ""
        self._streamed: set[str] = set()  # messages whose text is on the screen already
        self._calls: dict[str, tuple[str, Any]] = {}
        self._asking_rules: dict[str, str] = {}
        self._last_call = ""
        self._unfinished: dict[tuple[str, str], str] = {}  # by call and stream, so that lines do not mix
        self._running: str | None = None
        self._over = False

    async def show(self, items: Sequence[Published]) -> None:
        """Show a batch of events."""
        for item in items:
            await self._event(item.event)
        self._flush()
        if self.asker is not None:
            if self.asker.asking:
                self._break()
            self.asker.step_back()
        await self._screen.send()

    async def remark(self, text: str) -> None:
        """Print something that is not an event."""
        self._break()
        self._print(note(text, "yellow"))
        await self._screen.send()

    def _introduce(self, tool_call_id: str) -> Any:
        """Show the call that a question is about, and return its input."""
        self._head(tool_call_id)
        given = self._calls.get(tool_call_id, ("", None))[1]
        for line in replacement_lines(given):
            self._print(line)
        self._say_why(tool_call_id)
        return given

    def _doing(self) -> str | None:
        """Return what the task is busy with, or None while a line is open or a question is asked."""
        if self._over or self._flow is not None or (self.asker is not None and self.asker.asking):
            return None
        return self._running or "working"

    def _print(self, text: Text | str = "", *, end: str = "\n", flowing: bool = False) -> None:
        """Print, after clearing the spinner and leaving the line of the prompt."""
        self.spinner.clear()
        if self.asker is not None:
            self.asker.step_aside()
        self._console.print(text, end=end, soft_wrap=flowing)

    async def _event(self, event: Event) -> None:
        payload: object = event.payload
        if isinstance(payload, ev.OutputDelta):
            self._delta(payload)
            return
        tell = self._tellers.get(type(payload))
        if tell is None:
            return
        self._flush()
        await tell(self, payload, event)

    # --- streamed text ---------------------------------------------------------------------------

    def _delta(self, payload: ev.OutputDelta) -> None:
        style = REASONING if payload.kind == "reasoning_delta" else ""
        if payload.kind in ("json_delta", "unknown_delta"):
            return  # a call is shown once its input is complete
        self._streamed.add(payload.message_id)
        if self._flow is None or style != self._flow_style:
            self._break()
            self._enter("reasoning" if style else "text")
            self._flow = Flow(self._width)
            self._flow_style = style
        self._pending.append(payload.delta)

    def _flush(self) -> None:
        """Print the streamed text of this batch in one go."""
        if self._pending and self._flow is not None:
            self._write(self._flow.feed(printable("".join(self._pending))))
            self._pending.clear()

    def _break(self) -> None:
        """End the text that streams, if any."""
        self._flush()
        if self._flow is not None:
            self._write(self._flow.end())
            self._flow = None

    def _write(self, text: str) -> None:
        if text:
            self._print(Text(text, self._flow_style), end="", flowing=True)

    def _indented(self, text: str, style: str) -> None:
        flow = Flow(self._width, "  ")
        self._print(Text(flow.feed(text) + flow.end(), style), end="", flowing=True)

    def _width(self) -> int | None:
        return self._console.width if self._console.is_terminal else None

    def _enter(self, section: str) -> None:
        """Leave an empty line between things of different kinds."""
        if self._section and self._section != section:
            self._print()
        self._section = section

    def _note(self, text: str, style: Literal["dim", "yellow"] = "yellow") -> None:
        self._break()
        self._enter("note")
        self._print(note(text, style))

    # --- what is shown for each kind of event ----------------------------------------------------

    async def _created(self, p: ev.SessionCreated, event: Event) -> None:
        self._enter("head")
        title = f"{p.title} · " if p.title else ""
        words = f"{title}{p.runtime} · {p.permission_mode} · {p.workspace}"
        self._print(Text(one_line(words), "dim", no_wrap=True, overflow="ellipsis"))

    async def _steered(self, p: ev.TaskSteered, event: Event) -> None:
        said = " ".join(text_of(message.content) for message in p.messages)
        self._note(f"steered: {said}" if p.by is None else f"{who(p.by)}: {said}", "dim")

    async def _retracted(self, p: ev.OutputRetracted, event: Event) -> None:
        self._streamed.clear()  # the final text is printed whole, unless it streams again
        self._note(f"the text above was taken back: {p.reason}")

    async def _output(self, p: ev.OutputCompleted, event: Event) -> None:
        self._break()
        if p.message_id not in self._streamed:  # else its text is on the screen already
            for block in p.content:
                if isinstance(block, Reasoning):
                    self._whole(block.text, "reasoning", REASONING)
            self._whole(text_of(p.content), "text", "")
        if p.partial:
            self._note("the answer was cut off here")

    def _whole(self, text: str, section: str, style: str) -> None:
        if text:
            self._enter(section)
            self._flow, self._flow_style = Flow(self._width), style
            self._pending.append(text)
            self._break()

    async def _requested(self, p: ev.ToolCallRequested, event: Event) -> None:
        given = p.input
        if p.input_ref is not None:
            given = _decoded(await self._load(p.input_ref.artifact_id))
        self._calls[p.tool_call_id] = (p.name, given)
        self._head(p.tool_call_id)

    def _head(self, tool_call_id: str, *, again: bool = False) -> None:
        """Go on about a call: print its line, unless it was the last one printed."""
        self._break()
        self._enter("call")
        if self._last_call == tool_call_id:
            return
        self._last_call = tool_call_id
        name, given = self._calls.get(tool_call_id, (tool_call_id, None))
        self._print(call_line(name, given, self._console.width, again=again))

    async def _judged(self, p: ev.ToolCallPolicyEvaluated, event: Event) -> None:
        if p.result == "ask" and p.rule and not p.rule.startswith(MODE) and p.rule != "question":
            self._asking_rules[p.tool_call_id] = f"{p.rule}: {p.reason}" if p.reason else p.rule

    def _say_why(self, tool_call_id: str) -> None:
        """Name the rule that makes a call ask; that the permission mode asks is no news."""
        why = self._asking_rules.pop(tool_call_id, None)
        if why is not None:
            self._indented(f"{ASKS} {one_line(why)}", "yellow")

    async def _asked(self, p: ev.ApprovalRequested, event: Event) -> None:
        if self.asker is not None:
            self.asker.ask(p)
        if self._hint is None:
            return
        self._break()
        self._enter("call")
        if p.tool_call_id is None:
            self._print(note(p.summary, "yellow"))
        else:
            self._calls.setdefault(p.tool_call_id, (p.summary.partition(" ")[0], {}))
            self._head(p.tool_call_id)
            self._say_why(p.tool_call_id)
        verb, named = ("approve", p.tool_call_id or p.approval_id)
        if p.question is not None:
            verb, named = "answer", p.approval_id
            for line in question_lines(p.question):
                self._print(line)
        call = f"{short(event.trace.session_id)} {short(named)}" + (" …" if p.question else "")
        self._print(note(f"waits for an answer: codesdk{self._hint} {verb} {call}", "yellow", f"  {ASKS}"))

    async def _answered(self, p: ev.ApprovalAnswered, event: Event) -> None:
        if self.asker is not None:
            self.asker.settle(p)
        if p.decision == "approve" and p.by.id is not None:  # not by a person at this terminal
            how, said = ("approved", p.reason) if p.answer is None else ("answered", p.answer)
            words = f"{how} by {who(p.by)}" + (f": {said}" if said else "")
            self._indented(f"{GOOD} {one_line(words)}", "dim")

    async def _denied(self, p: ev.ToolCallDenied, event: Event) -> None:
        self._calls.setdefault(p.tool_call_id, (p.name, {}))
        self._head(p.tool_call_id, again=True)
        self._indented(f"{BAD} denied by {who(p.by)}: {one_line(p.reason)}", "red")

    async def _started(self, p: ev.ToolCallStarted, event: Event) -> None:
        self._running = f"{one_line(p.name, 60)} is running"

    async def _tool_output(self, p: ev.ToolOutputDelta, event: Event) -> None:
        """Show whole lines; hold back an unfinished one."""
        text = self._unfinished.pop((p.tool_call_id, p.stream), "") + p.delta
        *lines, rest = text.split("\n")
        if rest:
            self._unfinished[p.tool_call_id, p.stream] = rest
        self._output_lines(p.tool_call_id, lines, p.stream)

    def _output_lines(self, tool_call_id: str, lines: Sequence[str], stream: str) -> None:
        if lines:
            self._head(tool_call_id, again=True)
        for line in lines:
            self._print(Text(f"  {printable(line).expandtabs(4)}", "red" if stream == "stderr" else "dim"))

    async def _output_ended(self, p: ev.ToolOutputCompleted, event: Event) -> None:
        for call, stream in [key for key in self._unfinished if key[0] == p.tool_call_id]:
            self._output_lines(call, [self._unfinished.pop((call, stream))], stream)

    async def _done(self, p: ev.ToolCallCompleted, event: Event) -> None:
        self._running = None
        self._calls.setdefault(p.tool_call_id, (p.name, {}))
        self._head(p.tool_call_id, again=True)
        for line in result_lines(p.result_preview, is_error=p.is_error):
            self._print(line)
        for change in p.changes:
            if change.diff_ref is not None:
                data: bytes = await self._load(change.diff_ref.artifact_id)
                for line in diff_lines(data.decode("utf-8", "replace")):
                    self._print(line)

    async def _notice(self, p: ev.RuntimeNotice, event: Event) -> None:
        if p.kind not in _HIDDEN_NOTICES:
            self._note(f"{p.kind}: {p.message}")

    async def _fact(self, p: Any, event: Event) -> None:
        self._note(f"{event.type} {gist(event)}")

    async def _ended(self, p: ev.TaskCompleted | ev.TaskFailed | ev.TaskStopped, event: Event) -> None:
        self._over = True
        self._break()
        if self.asker is not None:
            self.asker.close()
        self._enter("end")
        self._print(ending_line(p))

    _tellers: ClassVar[dict[type, Teller]] = {
        ev.SessionCreated: _created,
        ev.TaskSteered: _steered,
        ev.OutputRetracted: _retracted,
        ev.OutputCompleted: _output,
        ev.ToolCallRequested: _requested,
        ev.ToolCallPolicyEvaluated: _judged,
        ev.ApprovalRequested: _asked,
        ev.ApprovalAnswered: _answered,
        ev.ToolCallDenied: _denied,
        ev.ToolCallStarted: _started,
        ev.ToolOutputDelta: _tool_output,
        ev.ToolOutputCompleted: _output_ended,
        ev.ToolCallCompleted: _done,
        ev.RuntimeNotice: _notice,
        ev.SettingsChanged: _fact,
        ev.SessionCompacted: _fact,
        ev.TranscriptSupplemented: _fact,
        ev.SuggestAnswered: _fact,
        ev.GrantRevoked: _fact,
        ev.TaskCompleted: _ended,
        ev.TaskFailed: _ended,
        ev.TaskStopped: _ended,
    }
    """What is shown. All other kinds of events appear only in `codesdk events`."""


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except ValueError:
        return data.decode("utf-8", "replace")
