"""A script as the model: each request plays the next turn, in the format of the request.

Hidden requests are answered from the script's asides and use up no turn. If the script has run out, a tool
is not offered or an expectation does not hold, the runtime gets an error in its provider's shape, and
`problems` tells the author of the script.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import repeat
from typing import cast, get_args

import msgspec

from codesdk.gateway.capture.purpose import purpose_of
from codesdk.gateway.reply import JSON, SSE, RawRequest, Reply, Reset, refuse
from codesdk.gateway.wires.exchange import (
    Ask,
    AskResult,
    AskText,
    Call,
    Codec,
    Fault,
    FaultKind,
    Finish,
    Part,
    ReasoningChunk,
    StopReason,
    TextChunk,
    Tokens,
)
from codesdk.script import Script, ScriptContext, Turn, model, unmet
from codesdk.tools import offered_as

SILENCE_S = 3600.0
_KINDS: dict[int, FaultKind] = {
    400: "invalid",
    401: "authentication",
    403: "permission",
    404: "not_found",
    413: "too_large",
    429: "rate_limit",
    503: "unavailable",
    529: "overloaded",
}


class ScriptedModel:
    """Answers the requests of one session from a script, from its first turn or a later one on.

    With `spares_asides`, requests that the agent's marks tell from the conversation use up no turn either.
    """

    def __init__(self, script: Script, turn: int = 0, *, spares_asides: bool = False) -> None:
        self._script = script
        self._next = turn
        self._spares_asides = spares_asides
        self._answers = 0
        # The conversation already has the ids of the turns before.
        self._id_prefix = f"scripted{turn}_" if turn else "scripted"
        self.problems: list[str] = []

    @property
    def played(self) -> int:
        """How many turns have been played."""
        return self._next

    def play(self, script: Script) -> None:
        """Play another script from its first turn on. Ids are counted on: the conversation may be the same."""
        self._script, self._next, self.problems = script, 0, []

    async def list_models(self, codec: Codec, request: RawRequest) -> None:
        """Answer nothing: only model requests are known."""

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Return the next answer."""
        self._answers += 1
        answer_id = f"{self._id_prefix}{self._answers:06d}"
        if ask.kind == "count_tokens":
            return Reply(status=200, headers=JSON, body=codec.count(estimate(ask)))
        purpose = purpose_of(ask)
        if purpose != "main" or (
            request.aside and self._spares_asides
        ):  # hidden requests come when a runtime likes, so they must not use up turns
            text = self._script.asides.get(purpose, "OK")
            return _send(codec, ask, answer_id, Turn(steps=(model.TextStep(chunks=(text,)),)), {})
        number, turn = self._next, self._script.turn(self._next)
        if turn is None:
            return self._fail(
                codec,
                f"The script has {len(self._script.turns)} turns; request {number + 1} asks for another.",
            )
        self._next += 1
        # A script names tools as CodeSDK does; the request has its runtime's names for them.
        names = {step.tool: offered_as(step.tool, ask.tools) for step in turn.calls if step.offered}
        problem = self._unmet(turn, ask) or _missing(names)
        if problem is not None:
            return self._fail(codec, f"turn {number + 1}: {problem}")
        fault = _fault_of(turn, ask)
        if fault is not None:
            # An error has no stream to pause in, so all delays of the turn come first.
            await asyncio.sleep(sum(step.seconds for step in turn.steps if isinstance(step, model.DelayStep)))
            return refuse(codec, fault)
        return _send(codec, ask, answer_id, turn, {tool: name or tool for tool, name in names.items()})

    def _unmet(self, turn: Turn, ask: Ask) -> str | None:
        if turn.expect is None:
            return None
        wanted = {*turn.expect.offered, *turn.expect.not_offered}
        own = {name for name in wanted if offered_as(name, ask.tools)}
        seen = ScriptContext(user=_last_user(ask), results=_results(ask), offered=own | set(ask.tools))
        return unmet(turn.expect, seen)

    def _fail(self, codec: Codec, problem: str) -> Reply:
        self.problems.append(problem)
        return refuse(codec, Fault(status=400, kind="invalid", message=f"scripted model: {problem}"))


def estimate(ask: Ask) -> int:
    """Estimate a request's tokens from its texts, at four characters a token."""
    size = sum(
        len(block.text) for m in ask.messages for block in m.blocks if isinstance(block, AskText | AskResult)
    )
    return max(1, size // 4)


def _send(codec: Codec, ask: Ask, answer_id: str, turn: Turn, names: dict[str, str]) -> Reply:
    write = _stream if ask.stream else _whole
    headers = SSE if ask.stream and ask.sse else JSON
    return Reply(status=200, headers=headers, body=write(codec, ask, answer_id, turn, names))


async def _stream(
    codec: Codec, ask: Ask, answer_id: str, turn: Turn, names: dict[str, str]
) -> AsyncIterator[bytes]:
    encoder = codec.encoder(ask, answer_id)
    yield encoder.start()
    for place, step in enumerate(turn.steps):
        if isinstance(step, model.DelayStep):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, model.SilenceStep):
            await asyncio.sleep(SILENCE_S)
        elif isinstance(step, model.ResetStep):
            raise Reset
        elif isinstance(step, model.TruncateStep):
            return
        elif isinstance(step, model.MalformedFrameStep):
            yield step.data.encode() or codec.broken_frame
        else:
            for part in _parts(step, answer_id, place, names):
                yield encoder.feed(part)
    yield encoder.feed(_finish(turn))


async def _whole(
    codec: Codec, ask: Ask, answer_id: str, turn: Turn, names: dict[str, str]
) -> AsyncIterator[bytes]:
    """Yield an unstreamed answer: one chunk, after the delays, or cut off."""
    parts: list[Part] = []
    for place, step in enumerate(turn.steps):
        if isinstance(step, model.DelayStep):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, model.SilenceStep):
            await asyncio.sleep(SILENCE_S)
        elif isinstance(step, model.ResetStep):
            raise Reset
        elif isinstance(step, model.TruncateStep | model.MalformedFrameStep):
            yield _cut(codec.whole(ask, answer_id, parts), step)
            return
        else:
            parts.extend(_parts(step, answer_id, place, names))
    yield codec.whole(ask, answer_id, [*parts, _finish(turn)])


def _cut(whole: bytes, step: model.TruncateStep | model.MalformedFrameStep) -> bytes:
    """Return a body that is not valid JSON: the script's text, or the first half of an answer."""
    wanted = step.data.encode() if isinstance(step, model.MalformedFrameStep) else b""
    return wanted or whole[: len(whole) // 2]


def _parts(step: model.Step, answer_id: str, place: int, names: dict[str, str]) -> Iterator[Part]:
    if isinstance(step, model.TextStep):
        yield from (TextChunk(text) for text in step.chunks)
    elif isinstance(step, model.ReasoningStep):
        yield from (ReasoningChunk(text) for text in step.chunks)
    elif isinstance(step, model.BurstStep):
        chunk = (TextChunk if step.of == "text" else ReasoningChunk)("x" * step.size)
        yield from repeat(chunk, step.count)
    elif isinstance(step, model.CallStep):
        yield Call(f"call_{answer_id}_{step.id or place}", names.get(step.tool, step.tool), step.input)


def _finish(turn: Turn) -> Finish:
    stop = turn.effective_stop_reason
    reason = cast("StopReason", stop) if stop in get_args(StopReason) else "end_turn"
    refusal: str | None = None
    for step in turn.steps:
        if isinstance(step, model.MaxTokensStep):
            reason = "max_tokens"
        elif isinstance(step, model.RefusalStep):
            reason, refusal = "refusal", step.text
    tokens = msgspec.convert(turn.usage or model.Usage(), Tokens, from_attributes=True)
    return Finish(stop_reason=reason, tokens=tokens, refusal=refusal)


def _fault_of(turn: Turn, ask: Ask) -> Fault | None:
    """Return the error that a turn answers with instead of a message, or None."""
    for step in turn.steps:
        if isinstance(step, model.HttpStep):
            kind = _KINDS.get(step.status, "invalid" if step.status < 500 else "server")
            message = step.message or f"scripted model: HTTP {step.status}"
            return Fault(status=step.status, kind=kind, message=message, retry_after_s=step.retry_after_s)
        if isinstance(step, model.ContextTooLargeStep):
            tokens = estimate(ask)
            message = f"{tokens} tokens are too many"
            return Fault(status=400, kind="context_too_large", message=message, tokens=tokens)
    return None


def _missing(names: dict[str, str | None]) -> str | None:
    absent = [tool for tool, name in names.items() if name is None]
    return f"it calls {absent[0]}, which the request does not offer." if absent else None


def _last_user(ask: Ask) -> str | None:
    for message in reversed(ask.messages):
        texts = [block.text for block in message.blocks if isinstance(block, AskText)]
        if message.role == "user" and texts:
            return "".join(texts)
    return None


def _results(ask: Ask) -> list[str]:
    """Return the texts of the tool results since the model's last answer."""
    results: list[str] = []
    for message in reversed(ask.messages):
        if message.role == "assistant":
            break
        results[:0] = [block.text for block in message.blocks if isinstance(block, AskResult)]
    return results
