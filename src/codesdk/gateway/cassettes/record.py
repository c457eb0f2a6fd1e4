"""A backend → the same backend, keeping every exchange: redacted, in order, and marked if it is not complete.

Chunks pass through at once and unchanged; they are redacted and kept when the answer has ended. When a
client hangs up, the inner backend is released first and the exchange kept afterwards.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable

import msgspec

from codesdk.contract.errors import CodeSDKError
from codesdk.gateway.capture.purpose import purpose_of
from codesdk.gateway.cassettes.cassette import Chunk, Ending, Exchange, request_hash
from codesdk.gateway.cassettes.scrub import Scrubber, clean_chunks, clean_headers, clean_query
from codesdk.gateway.reply import RawRequest, Reply, Watched
from codesdk.gateway.server import Backend
from codesdk.gateway.wires.exchange import Ask, Codec, Wire
from codesdk.redaction import Redactor

MAX_ANSWER_BYTES = 64 * 1024 * 1024
_LAST_EVENTS: dict[Wire, re.Pattern[bytes]] = {
    "anthropic": re.compile(rb'"type":\s*"message_stop"'),
    "responses": re.compile(rb'"type":\s*"response\.(?:completed|incomplete|failed)"'),
    "chat": re.compile(rb"data:\s*\[DONE\]"),
    "gemini": re.compile(rb'"finishReason":\s*"'),
}


class RecordingBackend:
    """Forwards requests to another backend and passes each exchange to `keep` when it has ended.

    `secrets` and the login that a request brings are redacted. What could not be kept is in `problems`;
    `others` are the requests for lists of models, which are forwarded but not kept.
    """

    def __init__(
        self,
        inner: Backend,
        keep: Callable[[Exchange], None],
        *,
        secrets: Iterable[str] = (),
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._keep = keep
        self._scrubber = Scrubber(secrets)
        self._max_answer_bytes = max_answer_bytes
        self._clock = clock
        self._asked = 0
        self.problems: list[str] = []
        self.others: list[str] = []

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Forward a model request, and keep the exchange."""
        self._asked += 1
        taken = _Taken(self._asked, ask, request, self._clock, self._max_answer_bytes)
        try:
            reply = await self._inner.answer(codec, ask, request)
        except asyncio.CancelledError:
            self._finish(taken, "abandoned")
            raise
        taken.opened(reply)
        if isinstance(reply.body, bytes):
            taken.add(reply.body)
            self._finish(taken, "complete")
            return reply
        body = Watched(reply.body, taken.add, lambda ending: self._finish(taken, ending))
        return Reply(status=reply.status, headers=reply.headers, body=body)

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        """Forward a request for the provider's models."""
        self.others.append(f"{request.method} {self._scrubber.for_request(request).text(request.path)}")
        return await self._inner.list_models(codec, request)

    def _finish(self, taken: "_Taken", ending: Ending) -> None:
        """Keep an exchange. Must not raise: the client gets its answer, whatever happens to the record."""
        try:
            self._keep(taken.exchange(ending, self._scrubber.for_request(taken.request)))
        except (CodeSDKError, ValueError, RecursionError) as error:
            self.problems.append(f"Exchange {taken.number} was not kept ({type(error).__name__}).")


class _Taken:
    """An exchange in progress."""

    def __init__(
        self, number: int, ask: Ask, request: RawRequest, clock: Callable[[], float], max_bytes: int
    ) -> None:
        self.number = number
        self.request = request
        self._ask = ask
        self._clock = clock
        self._began = clock()
        self._room = max_bytes
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._times: list[int] = []

    def opened(self, reply: Reply) -> None:
        self._status = reply.status
        self._headers = dict(reply.headers)

    def add(self, chunk: bytes) -> None:
        """Take a chunk. If the answer becomes too large, drop all of it."""
        if not chunk or self._room < 0:
            return
        self._room -= len(chunk)
        if self._room < 0:
            self._chunks, self._times = [], []
        else:
            self._chunks.append(chunk)
            self._times.append(round(1000 * (self._clock() - self._began)))

    def is_whole(self) -> bool:
        """Return whether a stream's last event has arrived: clients hang up right after it."""
        data = b"".join(self._chunks)
        return data.endswith(b"\n") and _LAST_EVENTS[self._ask.wire].search(data) is not None

    def exchange(self, ending: Ending, redactor: Redactor) -> Exchange:
        """Return the exchange, redacted."""
        if self._room < 0:
            ending = "too_large"
        elif ending == "abandoned" and self.is_whole():  # only the end of the connection was not awaited
            ending = "complete"
        ask, request = self._ask, self.request
        path, query = redactor.text(request.path), clean_query(request.query)
        sent = redactor.value(ask.body)
        body = sent if request.own is None else redactor.value(msgspec.json.decode(request.own))
        cleaned = clean_chunks(self._chunks, redactor)
        return Exchange(
            number=self.number,
            wire=ask.wire,
            method=request.method,
            path=path,
            query=query,
            hash=request_hash(ask.wire, request.method, path, query, body, request.step),
            purpose=purpose_of(ask),
            request=body,
            sent=None if request.own is None else sent,
            step=request.step,
            status=self._status,
            headers=clean_headers(self._headers, redactor),
            chunks=[_chunk(ms, piece) for ms, piece in zip(self._times, cleaned, strict=True) if piece],
            ending=ending,
        )


def _chunk(ms: int, piece: str | bytes) -> Chunk:
    return Chunk(ms=ms, text=piece) if isinstance(piece, str) else Chunk(ms=ms, data=piece)
