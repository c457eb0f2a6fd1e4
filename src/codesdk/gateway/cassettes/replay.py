"""A cassette as the model: each request gets the answer recorded for it, volatile parts aside.

Equal requests are answered in the order in which they were recorded. A request that was not recorded gets
an error in its provider's shape that shows the nearest recorded request and the difference. No provider is
ever contacted.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.payloads import Purpose
from codesdk.gateway.capture.purpose import purpose_of
from codesdk.gateway.cassettes.cassette import Chunk, Exchange, request_hash
from codesdk.gateway.cassettes.nearest import Flat, describe_differences, find_nearest, flatten
from codesdk.gateway.cassettes.scrub import Scrubber, clean_query
from codesdk.gateway.cassettes.volatile import normalize
from codesdk.gateway.reply import RawRequest, Reply, Reset, refuse
from codesdk.gateway.wires.exchange import Ask, Codec, Fault, Wire


class ReplayBackend:
    """Answers the requests of one session from a cassette.

    `secrets` are those redacted in the recording that requests may still hold. `pace` keeps the recorded
    pauses. `problems` has a text for every request that got no answer.
    """

    def __init__(
        self, exchanges: Sequence[Exchange], *, secrets: Iterable[str] = (), pace: bool = False
    ) -> None:
        self._scrubber = Scrubber(secrets)
        self._pace = pace
        self._exchanges = exchanges
        self._waiting: dict[str, list[Exchange]] = {}
        self._flat: list[Flat] | None = None  # made at the first miss
        self.played = 0
        self.problems: list[str] = []
        # Exchanges that cannot be replayed have a place here, too: a request for one is told why.
        self._hashes = [_hash_of(exchange) for exchange in exchanges]
        for exchange, key in zip(exchanges, self._hashes, strict=True):
            waiting = self._waiting.setdefault(key, [])
            if exchange.can_replay:
                waiting.append(exchange)

    @property
    def unplayed(self) -> int:
        """How many recorded answers have not been requested."""
        return sum(len(waiting) for waiting in self._waiting.values())

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Return the recorded answer."""
        redactor = self._scrubber.for_request(request)
        path, query = redactor.text(request.path), clean_query(request.query)
        try:
            body = redactor.value(_asked(ask, request))
            key = request_hash(ask.wire, request.method, path, query, body, request.step)
        except (InvalidRequest, RecursionError):
            return self._miss(codec, "The request is nested too deeply to be compared.")
        waiting = self._waiting.get(key)
        if waiting:
            self.played += 1
            return self._reply(waiting.pop(0))
        if waiting is not None:  # recorded, but used up or never complete: a nearest request would mislead
            return self._miss(codec, self._used_up(key, request.method, path))
        return self._miss(codec, self._unknown(request.method, path, flatten(normalize(body))))

    async def list_models(self, codec: Codec, request: RawRequest) -> None:
        """Answer nothing: only model requests are known."""

    def _reply(self, exchange: Exchange) -> Reply:
        assert exchange.status is not None, "only exchanges that can be replayed wait"
        chunks = exchange.chunks
        if len(chunks) <= 1 and exchange.ending == "complete" and not self._pace:
            body = chunks[0].bytes() if chunks else b""
            return Reply(status=exchange.status, headers=dict(exchange.headers), body=body)
        poured = _pour(chunks, was_reset=exchange.ending == "reset", pace=self._pace)
        return Reply(status=exchange.status, headers=dict(exchange.headers), body=poured)

    def _miss(self, codec: Codec, problem: str) -> Reply:
        self.problems.append(problem)
        return refuse(codec, Fault(status=400, kind="invalid", message=f"replay: {problem}"))

    def _used_up(self, key: str, method: str, path: str) -> str:
        times = [e for e, known in zip(self._exchanges, self._hashes, strict=True) if known == key]
        whole = sum(exchange.can_replay for exchange in times)
        if whole == 0:
            return (
                f"{method} {path} was recorded as exchange {times[0].number}, but its answer is not complete "
                f"({times[0].ending})."
            )
        answers = "its only answer was" if whole == 1 else f"all of its {whole} answers were"
        return f"{method} {path} is in the cassette, but {answers} already played."

    def _unknown(self, method: str, path: str, asked: Flat) -> str:
        if self._flat is None:
            self._flat = [flatten(normalize(exchange.request)) for exchange in self._exchanges]
        nearest = find_nearest(asked, self._flat)
        if nearest is None:
            return f"{method} {path} is not in the cassette, which is empty."
        exchange = self._exchanges[nearest.place]
        lines = [
            f"{method} {path} is not in the cassette. Nearest is exchange {exchange.number} "
            f"({exchange.purpose}), {nearest.likeness:.0%} alike:"
        ]
        if (exchange.method, exchange.path) != (method, path):
            lines.append(f"it was recorded at {exchange.method} {exchange.path}")
        return "\n".join([*lines, *describe_differences(self._flat[nearest.place], asked)])


class LenientReplay(ReplayBackend):
    """Answers a request that differs from the recorded ones, too: with the next answer of the same purpose.

    For a program that words its requests in another way than the recorded one did. `changes` has a text for
    every request that differs, in the order in which they came.
    """

    def __init__(self, exchanges: Sequence[Exchange], *, secrets: Iterable[str] = ()) -> None:
        super().__init__(_as_asked(exchanges), secrets=secrets)
        self.changes: list[str] = []
        self._asked = 0

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Return the recorded answer, or the one that comes nearest."""
        self._asked += 1
        redactor = self._scrubber.for_request(request)
        try:
            body = redactor.value(_asked(ask, request))
            path, query = redactor.text(request.path), clean_query(request.query)
            key = request_hash(ask.wire, request.method, path, query, body, request.step)
            asked = flatten(normalize(body))
        except (InvalidRequest, RecursionError):
            return self._miss(codec, "The request is nested too deeply to be compared.")
        if self._waiting.get(key):
            return await super().answer(codec, ask, request)
        purpose = purpose_of(ask)
        found = self._next(ask.wire, purpose)
        if found is None:
            self.changes.append(f"request {self._asked} ({purpose}) was not made in the recording")
            return self._miss(
                codec, f"There is no recorded answer left for a request of the purpose {purpose}."
            )
        recorded = flatten(normalize(found.request))
        lines = describe_differences(recorded, asked)
        self.changes.append(
            "\n".join([f"request {self._asked} ({purpose}), recorded as {found.number}:", *lines])
        )
        self.played += 1
        return self._reply(found)

    def _next(self, wire: Wire, purpose: Purpose) -> Exchange | None:
        """Take the first recorded exchange of a purpose that was not played yet."""
        waiting = [
            (exchange, key)
            for exchange, key in zip(self._exchanges, self._hashes, strict=True)
            if exchange in self._waiting[key] and (exchange.wire, exchange.purpose) == (wire, purpose)
        ]
        if not waiting:
            return None
        exchange, key = waiting[0]
        self._waiting[key].remove(exchange)
        return exchange


def _as_asked(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return exchanges in the order of their requests: they are stored as they ended.

    They are numbered from 1 each time the session is opened, so a number that comes again starts over.
    """
    found: list[Exchange] = []
    opened: dict[int, Exchange] = {}
    for exchange in exchanges:
        if exchange.number in opened:
            found += [opened[number] for number in sorted(opened)]
            opened = {}
        opened[exchange.number] = exchange
    return found + [opened[number] for number in sorted(opened)]


async def _pour(chunks: Sequence[Chunk], *, was_reset: bool, pace: bool) -> AsyncIterator[bytes]:
    passed_ms = 0
    for chunk in chunks:
        if pace and chunk.ms > passed_ms:
            await asyncio.sleep((chunk.ms - passed_ms) / 1000)
            passed_ms = chunk.ms
        yield chunk.bytes()
    if was_reset:
        raise Reset


def _asked(ask: Ask, request: RawRequest) -> dict[str, Any]:
    """Return what the agent asked."""
    return ask.body if request.own is None else msgspec.json.decode(request.own)


def _hash_of(exchange: Exchange) -> str:
    """Compute the hash again: since it was written, the rules may have changed or the body been edited."""
    try:
        return request_hash(
            exchange.wire, exchange.method, exchange.path, exchange.query, exchange.request, exchange.step
        )
    except RecursionError:
        raise InvalidRequest(
            f"Exchange {exchange.number} is nested too deeply to be compared. Record it again."
        ) from None
