"""The messages of a turn → those that fit the model's window. What is left out is reported, and stays left out.

First large outputs of tools become previews that name where the whole is kept, the oldest first; then the oldest turns
go, then the oldest steps of this turn. A shortened conversation is shortened by a good piece, so that the provider's
cache of it serves for a while.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from codesdk.contract.messages import ArtifactBlock, ContentBlock, Message, ToolResult
from codesdk.minicode.types import ContextEvent, ToolDefinition

Keep = Callable[[str], Awaitable[str]]
"""Keeps the whole of an output, and returns how the model is told where it is."""
PREVIEW_CHARS = 400
LARGE_BYTES = 1_600
"""An output of more bytes is given as a preview when room is needed."""
SHARE = 0.7
"""How much of the budget a conversation takes after it was shortened."""
_ARTIFACT_TOKENS = 1_500
"""About what an attachment takes, whatever its size: images are scaled."""
_LEAST, _MOST = 0.5, 4.0


class Context:
    """The messages of one turn as the model is sent them."""

    def __init__(self, messages: Iterable[Message], budget_tokens: int, keep: Keep | None = None) -> None:
        self.messages = list(messages)
        # Counted once: a long conversation loses a thousand turns one by one, and each asks what is left.
        self._sizes = list(map(_tokens, self.messages))
        self._total = sum(self._sizes)
        self._turn = _last_user(self.messages)
        """Where the turn begins: that message always stays."""
        self._budget = budget_tokens
        self._keep = keep
        self._overhead = 0
        self._scale = 1.0
        """How many tokens the provider counts for each that we estimate."""

    def add(self, *messages: Message) -> None:
        """Add messages at the end."""
        sizes = list(map(_tokens, messages))
        self.messages += messages
        self._sizes += sizes
        self._total += sum(sizes)

    def beside(self, instructions: str, tools: Sequence[ToolDefinition]) -> None:
        """Take into account what is sent beside the messages."""
        self._overhead = (len(instructions) + len(msgspec.json.encode(list(tools)))) // 4

    def learn(self, tokens: int) -> None:
        """Correct the estimate by what the provider counted for the request."""
        guessed = self._overhead + self._total
        if tokens > 0 and guessed > 0:
            self._scale = min(_MOST, max(_LEAST, tokens / guessed))

    @property
    def tokens(self) -> int:
        """About how many tokens a request has now."""
        return int(self._scale * (self._overhead + self._total))

    async def fit(self) -> ContextEvent | None:
        """Leave out what does not fit. Return what that is, if it is anything."""
        return await self._shorten(int(self._budget * SHARE)) if self.tokens > self._budget else None

    async def refused(self) -> ContextEvent | None:
        """Leave out a good piece, because the provider refused all of it. Return what that is, if anything can go."""
        self._budget = min(self._budget, self.tokens)
        return await self._shorten(int(self._budget * SHARE))

    async def _shorten(self, limit: int) -> ContextEvent | None:
        replaced = await self._make_previews(limit)
        omitted = self._drop(limit)
        if not replaced and not omitted:
            return None
        return ContextEvent(replaced=replaced, omitted=omitted, estimated_tokens=self.tokens)

    async def _make_previews(self, limit: int) -> list[str]:
        replaced: list[str] = []
        last = _last_answer(self.messages)
        for place, message in enumerate(self.messages[:last]):
            if self.tokens <= limit:
                break
            if message.role == "tool":
                content: list[ContentBlock] = []
                for block in message.content:
                    if isinstance(block, ToolResult) and _is_large(block):
                        replaced.append(block.tool_call_id)
                        block = await self._preview(block)
                    content.append(block)
                self._replace(place, msgspec.structs.replace(message, content=content))
        return replaced

    def _replace(self, place: int, message: Message) -> None:
        size = _tokens(message)
        self._total += size - self._sizes[place]
        self.messages[place], self._sizes[place] = message, size

    async def _preview(self, block: ToolResult) -> ToolResult:
        whole = _readable(block)
        where = ""
        if block.result_ref is not None:
            where = f", kept as {block.result_ref.content_hash}"
        elif self._keep is not None:
            where = f", kept as {await self._keep(whole)}"
        shown = f"{whole[:PREVIEW_CHARS]}… ({len(whole.encode('utf-8', 'replace')):,} bytes in all{where})"
        return msgspec.structs.replace(block, result=shown)

    def _drop(self, limit: int) -> int:
        """Remove the oldest messages until the rest fits: turns before this one, then steps of this one."""
        dropped = 0
        while self.tokens > limit:
            first, end = self._oldest()
            if first == end:
                break
            self._total -= sum(self._sizes[first:end])
            del self.messages[first:end], self._sizes[first:end]
            self._turn -= end - first if first < self._turn else 0
            dropped += end - first
        return dropped

    def _oldest(self) -> tuple[int, int]:
        """Return the range of messages that goes next; an empty one if none can."""
        if self._turn > 0:
            end = next((at for at in range(1, self._turn) if self.messages[at].role == "user"), self._turn)
            return 0, end
        # A step is an answer and what came back for it. What a person said stays, and so does the last step.
        answers = [at for at, message in enumerate(self.messages) if message.role == "assistant"]
        if len(answers) < 2:
            return 0, 0
        end = answers[0] + 1
        while self.messages[end].role == "tool":
            end += 1
        return answers[0], end


def _last_user(messages: Sequence[Message]) -> int:
    """Return where the last run of messages begins that people said."""
    at = len(messages)
    while at > 0 and messages[at - 1].role != "user":
        at -= 1
    while at > 1 and messages[at - 2].role == "user":
        at -= 1
    return max(0, at - 1)


def _last_answer(messages: Sequence[Message]) -> int:
    return next((at for at in reversed(range(len(messages))) if messages[at].role == "assistant"), 0)


def _is_large(block: ToolResult) -> bool:
    return len(_readable(block).encode("utf-8", "replace")) > LARGE_BYTES


def _readable(block: ToolResult) -> str:
    result = block.result
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()


def _tokens(message: Message) -> int:
    """Estimate tokens at four bytes of JSON each."""
    attached = sum(_ARTIFACT_TOKENS for block in message.content if isinstance(block, ArtifactBlock))
    return (len(msgspec.json.encode(message)) + 3) // 4 + attached
