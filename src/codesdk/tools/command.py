"""A command in a sandbox → its output as it arrives, and the result that a model reads: how it ended and what it said.

Whoever runs commands for a model does it through here: `exec`, and the shell of an agent that has one.
"""

import codecs
from collections.abc import Mapping

from codesdk.contract.ports import ToolRun, ToolSink
from codesdk.sandbox import Command, CommandEnd, LimitName, Sandbox, Stream, TriggerWatch

HEAD_CHARS = 4_000
TAIL_CHARS = 12_000
_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
_IN_WORDS: Mapping[LimitName, str] = {
    "wall": "It was stopped because its time was up.",
    "output": "It was stopped because it wrote too much.",
    "cpu": "It was stopped because it used too much processor time.",
    "memory": "It reached the memory limit.",
    "processes": "It reached the process limit.",
    "file_size": "It was stopped because a file became too large.",
}


async def run_command(
    sandbox: Sandbox,
    command: Command,
    output: ToolSink,
    *,
    head_chars: int = HEAD_CHARS,
    tail_chars: int = TAIL_CHARS,
) -> ToolRun:
    """Run a command to its end. Of each stream the result has the beginning and the end, if it is longer than both."""
    said = _Said(output, head_chars, tail_chars)
    watch = TriggerWatch(command.workspace)
    try:
        end = await sandbox.run(command, said.take)
    finally:
        # Also if it was stopped: then there is no result that could say it, but output is recorded.
        warning = watch.warning()
        if warning is not None:
            output("progress", f"{warning}\n")
    said.finish()
    return ToolRun(result=_told(end, said, warning), is_error=end.exit_code != 0, exit_code=end.exit_code)


class _Said:
    """A command's output: passed on as text, with its beginning and end kept for the result."""

    def __init__(self, output: ToolSink, head_chars: int, tail_chars: int) -> None:
        self._output = output
        decoder = codecs.getincrementaldecoder("utf-8")
        # Incremental, and one for each stream: chunks may cut characters, and the two streams interleave.
        self._decoders = {stream: decoder("replace") for stream in _STREAMS}
        self._kept = {stream: _HeadAndTail(head_chars, tail_chars) for stream in _STREAMS}

    def take(self, stream: Stream, data: bytes) -> None:
        """Take some bytes. They may end in the middle of a character."""
        self._pass_on(stream, self._decoders[stream].decode(data))

    def finish(self) -> None:
        """Flush the decoders: the output has ended."""
        for stream in _STREAMS:
            self._pass_on(stream, self._decoders[stream].decode(b"", final=True))

    def shown(self, stream: Stream) -> str:
        """Return what was kept of a stream, with a note on what was left out."""
        return self._kept[stream].text()

    def _pass_on(self, stream: Stream, text: str) -> None:
        if text:
            self._kept[stream].add(text)
            self._output(stream, text)


class _HeadAndTail:
    """Keeps the beginning and the end of a text of any length."""

    def __init__(self, head_chars: int, tail_chars: int) -> None:
        self._room = head_chars
        self._tail_chars = tail_chars
        self._head: list[str] = []  # in pieces: adding to a long text would copy it each time
        self._tail = ""
        self._left_out = 0

    def add(self, text: str) -> None:
        head, rest = text[: self._room], text[self._room :]
        if head:
            self._room -= len(head)
            self._head.append(head)
        if rest:
            tail = self._tail + rest
            self._tail = tail[-self._tail_chars :]
            self._left_out += len(tail) - len(self._tail)

    def text(self) -> str:
        gap = f"\n… ({self._left_out} characters left out) …\n" if self._left_out else ""
        return f"{''.join(self._head)}{gap}{self._tail}"


def _told(end: CommandEnd, said: _Said, warning: str | None) -> str:
    """Return how a command ended, in words, then its output."""
    lines = [f"Exit code {end.exit_code} after {end.duration_ms / 1000:.1f} s."]
    lines += [_IN_WORDS.get(limit, f"It reached the limit on {limit}.") for limit in end.limits_hit]
    if end.oom_kills:
        lines.append(f"Processes killed because memory ran out: {end.oom_kills}.")
    if end.refused_hosts:
        lines.append(f"Hosts that it may not reach: {', '.join(end.refused_hosts)}.")
    parts = [" ".join(lines), *([warning] if warning else [])]
    for stream in _STREAMS:
        if text := said.shown(stream):
            parts.append(f"--- {stream} ---\n{text.removesuffix(chr(10))}")
    return "\n".join(parts)
