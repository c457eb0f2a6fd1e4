"""A session's events → lines for the scrollback, written once, and the text that still streams.

What others do in the session is told like what is done here; a name says who it was.
"""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec
from rich.text import Text

from codesdk.cli.chat.blocks import Block, Blocks
from codesdk.cli.chat.marks import SAYS
from codesdk.cli.chat.paint import Painter
from codesdk.cli.chat.tool_output import ToolOutput
from codesdk.cli.view.gist import brief, gist, plural, who
from codesdk.cli.view.pieces import BAD, CALL, GOOD, NOTE, diff_lines, ending_line, result_lines
from codesdk.cli.view.safe import one_line
from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.contract.messages import ArtifactBlock, Message, Reasoning, text_of
from codesdk.contract.tools import Actor

Load = Callable[[str], Awaitable[bytes]]
"""Returns an artifact's bytes by its id."""
Teller = Callable[[Any, Any, Event], Awaitable[list[str]]]

MAX_SAID_LINES = 12
MAX_SAID_CHARS = 500
MAX_DIFF_CHARS = 500
"""A line that is longer is cut: files without line breaks would fill the screen."""
MAX_LIVE_CHARS = 4_000
"""Of a block that streams, so much is drawn as Markdown; of a longer one, its end as plain text."""
_REASONING = "dim italic"
_HIDDEN_NOTICES = frozenset({"signal"})  # frames of a program that have no event of ours: too many to show


class Story:
    """Tells what happens. `me` is the client id of this terminal."""

    def __init__(self, painter: Painter, load: Load, me: str, told: Callable[[str, Any], None]) -> None:
        """Make one. `told` is given the input of each call, for whoever asks about it."""
        self._paint = painter
        self._load = load
        self._me = me
        self._told = told
        self._blocks = Blocks()
        self._reasons = False
        self._streamed: set[str] = set()
        self._calls: dict[str, tuple[str, Any]] = {}
        self._outputs: dict[str, ToolOutput] = {}
        self._last_call = ""
        self._section = ""

    async def take(self, event: Event) -> list[str]:
        """Return the lines that an event adds to the scrollback."""
        payload: object = event.payload
        if isinstance(payload, ev.OutputDelta):
            return self._delta(payload)
        tell = self._tellers.get(type(payload))
        return [] if tell is None else await tell(self, payload, event)

    def live(self, most: int) -> list[str]:
        """Return what is not finished: at most so many lines, the last ones."""
        lines: list[str] = []
        rest = self._blocks.rest
        if rest.text.strip():
            if self._reasons:
                lines = self._paint.others(Text(rest.text[-MAX_LIVE_CHARS:], _REASONING))
            elif len(rest.text) > MAX_LIVE_CHARS:
                lines = self._paint.others(rest.text[-MAX_LIVE_CHARS:])
            else:
                lines = self._paint.markdown(rest)
        for output in self._outputs.values():
            lines += output.live(self._paint)
        return lines[-most:] if most > 0 else []

    def note(self, text: str, style: str = "dim", mark: str = NOTE) -> list[str]:
        """Return a remark of ours, after whatever still streams."""
        return [*self._break(), *self._paint.ours(f"{mark} {one_line(text, 2000)}", style)]

    def note_break(self) -> list[str]:
        """End the text that streams, so that something else can be printed."""
        return self._break()

    # --- what the model says ------------------------------------------------------------------------

    def _delta(self, p: ev.OutputDelta) -> list[str]:
        if p.kind in ("json_delta", "unknown_delta"):
            return []  # a call is shown once its input is complete
        reasons = p.kind == "reasoning_delta"
        lines: list[str] = []
        if reasons != self._reasons or p.message_id not in self._streamed:
            lines = self._break()
            self._reasons = reasons
            self._streamed.add(p.message_id)
        return lines + self._print(self._blocks.feed(p.delta))

    def _print(self, blocks: list[Block]) -> list[str]:
        lines: list[str] = []
        for block in blocks:
            if self._reasons:
                lines += ["", *self._paint.others(Text(block.text, _REASONING))]
            else:
                lines += self._paint.markdown(block)
        if lines:
            self._section, self._last_call = "text", ""
        return lines

    def _break(self) -> list[str]:
        """End the text that streams, if any."""
        return self._print(self._blocks.end())

    async def _output(self, p: ev.OutputCompleted, event: Event) -> list[str]:
        lines = self._break()
        if p.message_id not in self._streamed:
            for block in p.content:
                if isinstance(block, Reasoning) and block.text:
                    self._reasons = True
                    lines += [*self._print(self._blocks.feed(block.text)), *self._break()]
            self._reasons = False
            lines += [*self._print(self._blocks.feed(text_of(p.content))), *self._break()]
        self._streamed.discard(p.message_id)
        return lines + (self.note("the answer was cut off here", "yellow") if p.partial else [])

    async def _retracted(self, p: ev.OutputRetracted, event: Event) -> list[str]:
        self._streamed.clear()  # the final text is printed whole, unless it streams again
        return self.note(f"the text above was taken back: {p.reason}", "yellow")

    # --- what people say ----------------------------------------------------------------------------

    def _said(self, messages: list[Message], event: Event, how: str = "") -> list[str]:
        name = f"{one_line(by, 40)} " if (by := self._other(event)) else ""
        text = "\n".join(_shown(message) for message in messages).strip("\n")
        first, *more = text.split("\n")
        head = Text.assemble(
            (f"{name}{SAYS} ", "bold green"), (how, "dim"), (one_line(first, MAX_SAID_CHARS), "bold")
        )
        lines = [*self._break(), *self._apart("said"), *self._paint.ours(head)]
        lines += self._paint.others(Text(line[:MAX_SAID_CHARS], "bold") for line in more[:MAX_SAID_LINES])
        if len(more) > MAX_SAID_LINES:
            lines += self._paint.ours(f"… {plural(len(more) - MAX_SAID_LINES, 'more line')}", "dim")
        return lines

    async def _started(self, p: ev.TaskStarted, event: Event) -> list[str]:
        self._section = ""
        if p.summarizes_before is not None:
            return self.note("the runtime sums up the conversation")
        return ["", *self._said(p.messages, event)] if p.messages else []

    async def _queued(self, p: ev.TaskQueued, event: Event) -> list[str]:
        return self._said(p.messages, event, "queued: ")

    async def _steered(self, p: ev.TaskSteered, event: Event) -> list[str]:
        return self._said(p.messages, event, "steered: ")

    # --- calls --------------------------------------------------------------------------------------

    async def _requested(self, p: ev.ToolCallRequested, event: Event) -> list[str]:
        given = p.input
        if p.input_ref is not None:
            given = _decoded(await self._load(p.input_ref.artifact_id))
        self._calls[p.tool_call_id] = (p.name, given)
        self._told(p.tool_call_id, given)
        return self._about(p.tool_call_id)

    def _about(self, tool_call_id: str) -> list[str]:
        """Return the line of a call, unless it was the last one printed."""
        lines = self._break()
        if self._last_call == tool_call_id:
            return lines
        lines += self._apart("call")
        self._last_call = tool_call_id
        name, given = self._calls.get(tool_call_id, (tool_call_id, None))
        head = Text.assemble((f"{CALL} ", "cyan"), (one_line(name, 60), "bold"))
        if shown := brief(given, max(self._paint.width, 20)):
            head.append(f"  {shown}")
        return lines + self._paint.ours(head, one=True)

    async def _answered(self, p: ev.ApprovalAnswered, event: Event) -> list[str]:
        if p.decision != "approve":
            return []  # the denial of the call says it
        how = "approved" if p.answer is None else f"answered: {p.answer}"
        always = ", always in this session" if p.scope == "session" else ""
        by = f" by {one_line(name, 60)}" if (name := self._other(event) or _person(p.by, event)) else ""
        return self._paint.ours(f"  {GOOD} {one_line(how, 200)}{always}{by}", "green", one=True)

    async def _denied(self, p: ev.ToolCallDenied, event: Event) -> list[str]:
        self._calls.setdefault(p.tool_call_id, (p.name, None))
        words = f"  {BAD} denied by {who(p.by)}: {one_line(p.reason, 500)}"
        return [*self._about(p.tool_call_id), *self._paint.ours(words, "red")]

    async def _tool_output(self, p: ev.ToolOutputDelta, event: Event) -> list[str]:
        output = self._outputs.setdefault(p.tool_call_id, ToolOutput())
        shown = output.feed(p.stream, p.delta)
        return [*self._about(p.tool_call_id), *self._paint.others(shown)] if shown else []

    async def _output_ended(self, p: ev.ToolOutputCompleted, event: Event) -> list[str]:
        output = self._outputs.get(p.tool_call_id)
        if output is None:
            return []
        shown, skipped = output.end()
        lines = [*self._about(p.tool_call_id), *self._paint.others(shown)]
        if skipped:
            lines += self._paint.ours(f"  … {plural(skipped, 'line')} between", "dim")
        return lines + self._paint.others(output.tail)

    async def _done(self, p: ev.ToolCallCompleted, event: Event) -> list[str]:
        self._calls.setdefault(p.tool_call_id, (p.name, None))
        lines = self._about(p.tool_call_id)
        streamed = self._outputs.pop(p.tool_call_id, None)
        self._calls.pop(p.tool_call_id, None)
        if p.outcome == "unknown":
            lines += self._paint.ours(f"  {BAD} it began, and nobody saw how it ended", "red")
        if streamed is None or p.is_error:
            lines += self._paint.others(result_lines(p.result_preview, is_error=p.is_error))
        for change in p.changes:
            if change.diff_ref is not None:
                data = await self._load(change.diff_ref.artifact_id)
                shown = diff_lines(data.decode("utf-8", "replace"))
                lines += self._paint.others(text[:MAX_DIFF_CHARS] for text in shown)
        return lines

    def _other(self, event: Event) -> str:
        """Return who did it, if it was another client. A daemon puts the label of a token before a client's name."""
        by = event.trace.client_id or ""
        return "" if by == self._me or by.endswith(f"/{self._me}") else by

    # --- the rest -----------------------------------------------------------------------------------

    def _apart(self, section: str) -> list[str]:
        """Return an empty line between things of different kinds."""
        apart = self._section not in ("", section)
        self._section = section
        return [""] if apart else []

    async def _notice(self, p: ev.RuntimeNotice, event: Event) -> list[str]:
        return [] if p.kind in _HIDDEN_NOTICES else self.note(f"{p.kind}: {p.message}")

    async def _fact(self, p: Any, event: Event) -> list[str]:
        return self.note(f"{event.type} {gist(event, 500)}")

    async def _stopping(self, p: ev.TaskStopRequested, event: Event) -> list[str]:
        return self.note("stopping", "yellow")

    async def _ended(self, p: ev.TaskCompleted | ev.TaskFailed | ev.TaskStopped, event: Event) -> list[str]:
        lines = self._break()
        self._outputs.clear()
        self._section = self._last_call = ""
        return [*lines, "", *self._paint.ours(ending_line(p))]

    _tellers: ClassVar[dict[type, Teller]] = {
        ev.OutputRetracted: _retracted,
        ev.OutputCompleted: _output,
        ev.TaskStarted: _started,
        ev.TaskQueued: _queued,
        ev.TaskSteered: _steered,
        ev.TaskStopRequested: _stopping,
        ev.ToolCallRequested: _requested,
        ev.ApprovalAnswered: _answered,
        ev.ToolCallDenied: _denied,
        ev.ToolOutputDelta: _tool_output,
        ev.ToolOutputCompleted: _output_ended,
        ev.ToolCallCompleted: _done,
        ev.RuntimeNotice: _notice,
        ev.SettingsChanged: _fact,
        ev.SessionCompacted: _fact,
        ev.TranscriptSupplemented: _fact,
        ev.SuggestAnswered: _fact,
        ev.SessionResumed: _fact,
        ev.SessionRecovered: _fact,
        ev.SessionNotResumed: _fact,
        ev.SessionClosed: _fact,
        ev.FilesUndone: _fact,
        ev.GrantRevoked: _fact,
        ev.TaskCompleted: _ended,
        ev.TaskFailed: _ended,
        ev.TaskStopped: _ended,
    }
    """What is told. All other kinds of events appear only in `codesdk events`."""


def _person(by: Actor, event: Event) -> str:
    """Return the name of somebody without a client of their own."""
    return "" if event.trace.client_id else who(by)


def _shown(message: Message) -> str:
    """Return what a person said, with the names of what is attached."""
    files = [block for block in message.content if isinstance(block, ArtifactBlock)]
    names = "".join(f"\n[{one_line(file.name or file.content_type or 'a file', 80)}]" for file in files)
    return text_of(message.content) + names


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except ValueError:
        return data.decode("utf-8", "replace")
