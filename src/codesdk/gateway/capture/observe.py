"""A backend → the same backend, reporting to the session's tap: request, exact input, timing, usage, cost.

The request is forwarded at once and examined meanwhile, in a thread; the first byte of the answer waits
until the request is stored. Chunks pass through unchanged and are decoded on the side. A request that the
tap refuses is answered with an error that its client does not retry.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping
from itertools import islice

import msgspec

from codesdk import prices
from codesdk.contract.canonical import content_hash
from codesdk.contract.models import (
    ExactInput,
    ModelAnswered,
    ModelAsked,
    ModelTap,
    OwnTexts,
    Refused,
    RequestStatus,
    SplitInput,
    StoredInput,
    Tokens,
)
from codesdk.contract.tools import ManifestEntry
from codesdk.gateway.capture.exact import Split, Splitter
from codesdk.gateway.capture.purpose import purpose_of
from codesdk.gateway.capture.sources import implicit_sources, sources_document
from codesdk.gateway.capture.sources_blocks import blocks_of
from codesdk.gateway.capture.sources_cut import Files
from codesdk.gateway.capture.usage import count_usage
from codesdk.gateway.cassettes.scrub import logins_of
from codesdk.gateway.reply import BodyEnd, RawRequest, Reply, Watched, close_body, refuse
from codesdk.gateway.server import Backend
from codesdk.gateway.wires.exchange import Ask, Codec, Fault, Seen, Wire
from codesdk.gateway.wires.formats import find_route
from codesdk.redaction import Redactor

MAX_WHOLE_BYTES = 16 * 1024 * 1024
"""How much of an unstreamed answer is read to find its usage."""
MAX_LOGINS = 64
"""How many words of a request's headers and query may be logins. A program needs one."""
_STATUSES: dict[BodyEnd, RequestStatus] = {
    "complete": "completed",
    "reset": "failed",
    "abandoned": "abandoned",
}
ReadFiles = Callable[[], Mapping[str, bytes]]
"""Reads the files a runtime may take instructions from. Blocking."""
FindLack = Callable[[Wire, RawRequest], str | None]
"""Returns the name of the key that a request needs, if it is missing."""
FindPrice = Callable[[Wire, str, Tokens], float | None]
"""Returns the list price of so many tokens of a model, or None if it is not known."""


class ObservedBackend:
    """Answers the requests of one session from another backend, and reports them to its tap."""

    def __init__(
        self,
        inner: Backend,
        tap: ModelTap,
        read_files: ReadFiles,
        *,
        keeps: bool = False,
        lacks: FindLack | None = None,
        price_of: FindPrice = prices.price_of,
    ) -> None:
        self._inner = inner
        self._price_of = price_of
        self._tap = tap
        self._read_files = read_files
        self._keeps = keeps
        self._lacks = lacks
        self._redactor = Redactor()
        self._splitter = Splitter()
        self._files = Files({})
        self._studying = asyncio.Lock()
        self._passed = 0
        self.stored: dict[int, StoredInput] = {}
        """The hashes of stored requests, by number in the order in which they were forwarded."""

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Forward a model request, unless the tap refuses it."""
        await prices.ready()
        asked = ModelAsked(
            purpose=purpose_of(ask),
            model=ask.model,
            content=_content(ask),
            estimated_input=len(request.body) // 4,
            price=lambda tokens: self._price_of(ask.wire, ask.model, tokens),
            lacks=None if self._lacks is None else self._lacks(ask.wire, request),
        )
        opened = await self._tap.opened(asked)
        if isinstance(opened, Refused):
            return refuse(codec, _refusal(codec, opened))
        # Storing runs beside the request, so that a log does not delay the model.
        passing = _Passing(opened, codec, ask.model, self._tap, self._price_of, stream=ask.stream)
        if ask.kind == "generate":
            passing.estimated_input = asked.estimated_input
        self._passed += 1
        storing = asyncio.create_task(self._store(opened, self._passed, ask, request))
        reply: Reply | None = None
        try:
            reply = await self._inner.answer(codec, ask, request)
            passing.status = reply.status
            await storing  # no byte of the answer reaches the runtime before its request is in the log
        except BaseException as error:
            storing.cancel()
            try:
                if reply is not None:
                    await close_body(reply.body)
            finally:  # what it has reserved of a budget must be given back in any case
                passing.end("abandoned" if isinstance(error, asyncio.CancelledError) else "failed")
            raise
        return _watch(reply, passing)

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        """Forward a request for the provider's models. It is recorded, too: it goes out with the same key."""
        # A missing key does not end the task: a runtime may ask a provider whose models it will not use.
        opened = await self._tap.opened(ModelAsked(purpose="models", model=None))
        if isinstance(opened, Refused):
            return refuse(codec, _refusal(codec, opened))
        passing = _Passing(opened, codec, None, self._tap, self._price_of, stream=False)
        try:
            reply = await self._inner.list_models(codec, request)
        except BaseException as error:
            passing.end("abandoned" if isinstance(error, asyncio.CancelledError) else "failed")
            raise
        if reply is None:
            passing.end("failed")
            return None
        passing.status = reply.status
        return _watch(reply, passing)

    async def _store(self, request_id: str, number: int, ask: Ask, request: RawRequest) -> None:
        if ask.kind == "count_tokens":  # the model reads nothing, so there is no exact input to keep
            return
        redactor = self._redactor_for(request)
        own = await self._tap.own_texts()
        async with self._studying:  # the splitter takes one request of a session at a time
            splits, exact = await asyncio.to_thread(self._study, ask, request, redactor, own)
            stored = await self._tap.taken(request_id, exact)
            if self._keeps:
                self.stored[number] = stored
            for split in splits:
                self._splitter.kept(split)

    def _redactor_for(self, request: RawRequest) -> Redactor:
        """Return the redactor for a request: the session's secrets, and the login that it brings.

        That login is one of the session's secrets from now on, whether it is worth anything or not: a provider may repeat
        it, in this answer or a later one. There is only so much room for them.
        """
        known = self._tap.secrets
        new = [login for login in dict.fromkeys(islice(logins_of(request), MAX_LOGINS)) if login not in known]
        if new:
            self._tap.learn_login(new)
            known = self._tap.secrets
            new = [login for login in new if login not in known]
        secrets = (*known, *new)
        if secrets != self._redactor.secrets:
            self._redactor = Redactor(secrets)
        return self._redactor

    def _study(
        self, ask: Ask, request: RawRequest, redactor: Redactor, own: OwnTexts
    ) -> tuple[list[Split], ExactInput]:
        split = self._splitter.split(ask.wire, request.body, redactor)
        asked = None if request.own is None else self._splitter.split(ask.wire, request.own, redactor)
        files = {label: redactor.data(data) for label, data in self._read_files().items()}
        if (
            files != self._files.given
        ):  # they rarely change, and every request of a session is compared with them
            self._files = Files(files)
        clean = _clean_ask(ask, request, redactor)
        tools = [
            ManifestEntry(name=block.tool, schema_hash=content_hash(block.text.encode("utf-8", "replace")))
            for block in blocks_of(clean)
            if block.part == "tool" and block.tool
        ]
        splits = [split] if asked is None else [split, asked]
        return splits, ExactInput(
            wire=ask.wire,
            fields=split.fields,
            parts=split.parts,
            own=None if asked is None else SplitInput(fields=asked.fields, parts=asked.parts),
            tools=tools,
            estimated_tokens=split.message_bytes // 4,
            overhead_tokens=(len(request.body) - split.message_bytes) // 4,
            sources=sources_document(implicit_sources(clean, own, self._files)),
        )


class _Passing:
    """One request in flight: when it began, when the first byte arrived, what the answer says.

    Without a model, as for a list of them, the answer says nothing about usage and is not read.
    """

    def __init__(
        self,
        request_id: str,
        codec: Codec,
        model: str | None,
        tap: ModelTap,
        price_of: FindPrice,
        *,
        stream: bool,
    ) -> None:
        self.request_id = request_id
        self._price_of = price_of
        self._wire: Wire = codec.wire
        self._decoder = None if model is None else codec.decoder()
        self._model = model
        self._tap = tap
        self._stream = stream
        self._began = time.monotonic()
        self._first: int | None = None
        self.status: int | None = None
        self.estimated_input: int | None = None
        """Of a request that a model answers, and so uses tokens."""
        self._kept: list[bytes] = []
        self._room = MAX_WHOLE_BYTES

    def take(self, chunk: bytes) -> None:
        if self._first is None:
            self._first = self._elapsed_ms()
        if self._decoder is None:
            return
        if self._is_good() and self._stream:
            self._decoder.feed(chunk)
        elif self._room > 0:
            self._room -= len(chunk)  # an error, or an unstreamed answer, is decoded as a whole at the end
            self._kept.append(chunk)

    def end(self, status: RequestStatus) -> None:
        """Report the end to the tap."""
        seen = self._read()
        # A provider may also report an error inside a stream that began with status 200.
        if status == "completed" and (seen.error is not None or not self._is_good()):
            status = "failed"
        model = seen.model or self._model
        tokens, estimated = self._count(seen, status)
        self._tap.closed(
            self.request_id,
            ModelAnswered(
                status=status,
                duration_ms=self._elapsed_ms(),
                http_status=self.status,
                time_to_first_byte_ms=self._first,
                model=model,
                usage=tokens,
                estimated=estimated,
                cost_usd=None if tokens is None else self._price_of(self._wire, model or "", tokens),
                error=seen.error,
            ),
        )

    def _read(self) -> Seen:
        if self._decoder is None:
            return Seen()
        if self._kept:
            self._decoder.whole(b"".join(self._kept))
        return self._decoder.result()

    def _count(self, seen: Seen, status: RequestStatus) -> tuple[Tokens | None, bool]:
        if self.estimated_input is None:
            return seen.tokens, False
        if self.status is None:  # no answer yet: a provider that was asked has at least read the request
            return (Tokens(input=self.estimated_input), True) if status == "abandoned" else (None, False)
        if not self._is_good():
            return seen.tokens, False
        cut = status == "abandoned" and not self._stream  # half of an unstreamed answer cannot be decoded
        unread = sum(map(len, self._kept)) if cut else 0
        return count_usage(seen, self.estimated_input, unread)

    def _is_good(self) -> bool:
        return self.status is not None and self.status < 400

    def _elapsed_ms(self) -> int:
        return round(1000 * (time.monotonic() - self._began))


def _watch(reply: Reply, passing: _Passing) -> Reply:
    """Return a reply that reports to `passing` what it brings and how it ends."""
    if isinstance(reply.body, bytes):
        passing.take(reply.body)
        passing.end("completed")
        reply.request_id = passing.request_id
        return reply
    body = Watched(reply.body, passing.take, lambda ending: passing.end(_STATUSES[ending]))
    return Reply(status=reply.status, headers=reply.headers, body=body, request_id=passing.request_id)


def _refusal(codec: Codec, refused: Refused) -> Fault:
    """Return an error that clients of this format do not retry: for Responses a quota, else a permission."""
    if codec.wire == "responses":
        return Fault(status=429, kind="quota", message=refused.message)
    return Fault(status=403, kind="permission", message=refused.message)


def _content(ask: Ask) -> int:
    """Return a number that changes when there is something new to answer: message count and last message."""
    last = msgspec.json.encode(ask.messages[-1].blocks) if ask.messages else b""
    return zlib.crc32(last, len(ask.messages)) << 16 | len(ask.messages) & 0xFFFF


def _clean_ask(ask: Ask, request: RawRequest, redactor: Redactor) -> Ask:
    body = redactor.value(ask.body)
    if body is ask.body:
        return ask
    found = find_route(request.method, request.path, request.query)
    assert found is not None, "the server found it before"
    codec, route = found
    return codec.parse(route, body)
