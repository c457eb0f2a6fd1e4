"""One request of an agent → one answer to it, made of one answer of the model or of several, in steps.

Where a model calls nothing but what it does not have, it is asked again with our denials as results, and its next
answer goes on where the last one ended. Each request passes the backends behind this one, so each has its own id, its
own exact input and its own share of the budgets. Nothing of a stream is held back but the end of a step, which waits
until the calls that were denied in it are in the log.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from codesdk.contract.ownership import WireCall, WireTap
from codesdk.gateway.ownership.acts import Acts, AnswerActs, DeniedCall, Plan
from codesdk.gateway.ownership.values import write_json
from codesdk.gateway.reply import RawRequest, Reply, Reset, close_body
from codesdk.gateway.server import Backend
from codesdk.gateway.wires.exchange import Ask, Codec, Fault
from codesdk.gateway.wires.formats import find_route
from codesdk.gateway.wires.sse import frame

MAX_AGAIN = 5
"""How often a model is asked again within one answer. One that still calls what it does not have, although it was told
each time what it has, would go on for ever, and every request is paid for."""
MAX_WHOLE_BYTES = 64 * 1024 * 1024
"""How large an unstreamed answer may be: it is passed on when all of it has been judged."""
_PASSING_FAULTS = frozenset({408, 409, 429})
"""Errors below 500 that an agent may try again."""
_NAMED = 8  # of the calls that were denied, in what people are told


class Sent:
    """A request as the model gets it."""

    def __init__(self, codec: Codec, request: RawRequest, ask: Ask, body: dict[str, Any], step: int) -> None:
        self.codec = codec
        self.body = body
        if body == ask.body:  # nothing to change: the very bytes of the agent are passed on
            self.ask, self.request = ask, request
            return
        found = find_route(request.method, request.path, request.query)
        assert found is not None, "the server found it before"
        self.ask = codec.parse(found[1], body)
        own = request.body if request.own is None else request.own
        self.request = msgspec.structs.replace(request, body=write_json(body), own=own, step=step)

    async def by(self, inner: Backend) -> Reply:
        """Send it."""
        return await inner.answer(self.codec, self.ask, self.request)


class Turn:
    """An answer to an agent while it is made. `denied` remembers its denied calls, by mark, for later requests."""

    def __init__(
        self,
        inner: Backend,
        tap: WireTap,
        acts: Acts,
        plan: Plan,
        sent: Sent,
        denied: dict[str, DeniedCall],
        *,
        may_ask_again: bool,
        tells_breaks: bool = False,
    ) -> None:
        self._inner = inner
        self._tap = tap
        self._acts = acts
        self._sent = sent
        self._first = sent
        self._denied = denied
        self._left = MAX_AGAIN if may_ask_again else 0
        self._may_ask_again = may_ask_again
        self._tells_breaks = tells_breaks and sent.ask.sse
        self._names: list[str] = []
        self._told = 0
        self._request_id = ""
        self.answer: AnswerActs = acts.answer(plan, sent.body)

    async def run(self) -> Reply:
        """Ask the model. Return its answer as the agent gets it."""
        reply = await self._sent.by(self._inner)
        if not reply.is_good or self._sent.ask.kind == "count_tokens":
            return reply
        self._request_id = reply.request_id or ""
        if self._sent.ask.stream and not self._is_whole(reply):
            reply.body = Steps(self, reply.body)
            return reply
        return await self._whole(reply)

    async def record(self) -> None:
        """Have the denied calls of the present step recorded, those that were not yet."""
        new, self._told = self.answer.denied[self._told :], len(self.answer.denied)
        for call in new:
            self._denied[call.mark] = call
            self._names.append(call.name)
            await self._tap.denied(WireCall(request_id=self._request_id, **msgspec.structs.asdict(call)))

    async def ask_again(self) -> Reply | None:
        """Ask the model again if it called nothing that it has. Return its next answer; None if the last one stands."""
        answer = self.answer
        if not self._may_ask_again or not answer.ended or not answer.denied or answer.passed:
            return None
        if not self._left:
            self._tap.give_up(
                f"The model called nothing but tools that it does not have ({self._called}), although it was told so"
                " each time. The task was stopped; start it again, perhaps with another wording or another model."
            )
            return None
        self._left -= 1
        first = self._first
        body = self._acts.again(self._sent.body, answer)
        sent = Sent(first.codec, first.request, first.ask, body, MAX_AGAIN - self._left)
        reply = await sent.by(self._inner)
        if not reply.is_good:
            return await self._failed(reply)
        answer.next_step()
        self._sent, self._told, self._request_id = sent, 0, reply.request_id or ""
        return reply

    def broken_off(self) -> bytes:
        """Return the error with which a stream ends that breaks off. Raise `Reset` where the connection breaks, too."""
        if not self._tells_breaks:
            raise Reset
        codec = self._first.codec
        # A number that agents know as one to try again at: some read the words of an error in a stream, and no code.
        fault = Fault(status=502, kind="server", message="502 The model's answer broke off. Try again.")
        return frame("error" if codec.wire == "anthropic" else "", codec.error(fault)[1])

    async def _failed(self, reply: Reply) -> Reply | None:
        """Deal with an error in place of a further answer.

        A request that the session itself refused has ended its task already. Where the agent may try again, it gets the
        error, or a connection that breaks: what it has of the answer is not one that the model would stand by.
        """
        if reply.request_id is None:
            return None
        if reply.status in _PASSING_FAULTS or reply.status >= 500:
            return reply
        await close_body(reply.body)
        self._tap.give_up(
            f"The model called tools that it does not have ({self._called}), and its provider refused the request that"
            f" told it so (HTTP {reply.status}). Start the task again, perhaps with another wording."
        )
        return None

    async def _whole(self, reply: Reply) -> Reply:
        """Return an unstreamed answer."""
        while True:
            body = self.answer.whole(await _read(reply.body))
            await self.record()
            further = await self.ask_again()
            if further is None:
                reply.body = body
                return reply
            if not further.is_good:
                return further
            reply = further

    def _is_whole(self, reply: Reply) -> bool:
        """Return whether an answer came as one, although a stream was asked for."""
        kind = next((value for name, value in reply.headers.items() if name.lower() == "content-type"), "")
        return self._sent.ask.sse and "json" in kind

    @property
    def _called(self) -> str:
        return ", ".join(list(dict.fromkeys(self._names))[:_NAMED])


class Steps:
    """The body of a streamed answer. A class and no generator, because it must release what it holds even if it is
    never iterated."""

    def __init__(self, turn: Turn, body: bytes | AsyncIterator[bytes]) -> None:
        self._turn = turn
        self._body = _chunks(body)
        self._is_over = False

    def __aiter__(self) -> "Steps":
        return self

    async def __anext__(self) -> bytes:
        while not self._is_over:
            try:
                chunk = await anext(self._body)
            except StopAsyncIteration:
                if (last := await self._next_step()) is not None:
                    return last
            except Reset:
                await self._turn.record()
                return self._broken_off()
            else:
                if passed := self._turn.answer.feed(chunk):
                    return passed
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Release the model's answer at once; then record what it had called by now."""
        self._is_over = True
        await close_body(self._body)
        await self._turn.record()

    async def _next_step(self) -> bytes | None:
        """Go on with another answer of the model, or return the end of this one."""
        await close_body(self._body)
        await self._turn.record()
        reply = await self._turn.ask_again()
        if reply is None:
            self._is_over = True
            return self._turn.answer.end()
        self._body = _chunks(reply.body)
        if not reply.is_good:
            await close_body(self._body)
            return self._broken_off()
        return None

    def _broken_off(self) -> bytes:
        last = self._turn.broken_off()
        self._is_over = True
        return last


class _Once:
    """A body that is there already, as one chunk."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    def __aiter__(self) -> "_Once":
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, None
        if body is None:
            raise StopAsyncIteration
        return body


def _chunks(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    return _Once(body) if isinstance(body, bytes) else body


async def _read(body: bytes | AsyncIterator[bytes]) -> bytes:
    """Return all of a body. One that is too large to be judged is cut off, which its agent sees."""
    if isinstance(body, bytes):
        return body
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in body:
            size += len(chunk)
            if size > MAX_WHOLE_BYTES:
                raise Reset
            parts.append(chunk)
    finally:
        await close_body(body)
    return b"".join(parts)
