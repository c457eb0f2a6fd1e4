"""Recorded exchanges ↔ a cassette: one line of JSON as a header, then one for each exchange.

What is written is already redacted (see `record`). Errors on reading name line and field. Unknown fields are
ignored, so that a newer writer of the same version can be read.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from codesdk.contract.arguments import path_text
from codesdk.contract.canonical import CanonicalError, hash_json
from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.contract.events import Purpose
from codesdk.contract.validation import split_error
from codesdk.gateway.cassettes.volatile import normalize
from codesdk.gateway.wires.exchange import Wire

FORMAT = "codesdk-cassette"
VERSION = 1
MAX_BYTES = 512 * 1024 * 1024
MAX_EXCHANGES = 100_000

Ending = Literal["complete", "reset", "abandoned", "too_large"]
"""How an answer ended: completely, cut off by the provider, abandoned by the client, or too large to keep."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str
    version: int


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of an answer as it arrived: `text`, or `data` in base64 if the answer is not UTF-8."""

    ms: int
    """When it arrived, counted from the request."""
    text: str = ""
    data: bytes | None = None

    def bytes(self) -> bytes:
        """Return what was sent."""
        return self.text.encode() if self.data is None else self.data


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model request and its answer, redacted. `status` is None if the client left before there was one.

    `request` is what the agent asked, by which replay finds it; the answer is the model's, before the acts of the
    gateway, which it passes again.
    """

    number: int
    wire: Wire
    method: str
    path: str
    query: str = ""
    hash: str
    purpose: Purpose
    request: dict[str, Any]
    sent: dict[str, Any] | None = None
    """What the model was asked, if the gateway changed it."""
    step: int = 0
    """How often the model was asked before for the same answer to the agent."""
    status: int | None = None
    headers: dict[str, str] = {}
    chunks: list[Chunk] = []
    ending: Ending

    @property
    def can_replay(self) -> bool:
        """Whether it holds everything the provider sent."""
        return self.ending in ("complete", "reset") and self.status is not None


def request_hash(wire: Wire, method: str, path: str, query: str, body: dict[str, Any], step: int = 0) -> str:
    """Return the hash by which replay matches requests. `body` is the agent's, and must be redacted already."""
    value: dict[str, Any] = {
        "wire": wire,
        "method": method,
        "path": path,
        "query": query,
        "body": normalize(body),
    }
    if step:
        value["step"] = step
    try:
        return hash_json(value)
    except CanonicalError:  # such as a huge integer, which providers accept nevertheless
        text = json.dumps(value, sort_keys=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class Tape:
    """Collects exchanges as they end, up to a size; `dump` returns them in the order of the requests."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._lines: list[tuple[int, bytes]] = []
        self.problems: list[str] = []

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, exchange: Exchange) -> None:
        """Keep an exchange, or note in `problems` that there is no room for it."""
        line = msgspec.json.encode(exchange) + b"\n"
        if self._size + len(line) > self._max_bytes or len(self._lines) >= MAX_EXCHANGES:
            self.problems.append(f"Exchange {exchange.number} was not kept: the cassette is full.")
            return
        self._size += len(line)
        self._lines.append((exchange.number, line))

    def dump(self) -> bytes:
        """Return the cassette."""
        # Exchanges were added as they ended; requests that overlapped ended in another order than they began.
        lines = (line for _, line in sorted(self._lines, key=lambda entry: entry[0]))
        return b"".join((_first_line(), *lines))


def dump_cassette(exchanges: Iterable[Exchange]) -> bytes:
    """Return exchanges as a cassette."""
    return b"".join((_first_line(), *(msgspec.json.encode(exchange) + b"\n" for exchange in exchanges)))


def load_cassette(path: str | Path, source: str | None = None) -> list[Exchange]:
    """Return the exchanges of a file. Raise `InvalidRequest`, naming the place, by `source` if given."""
    path = Path(path_text(path, "path"))
    source = source or str(path)
    try:
        if not path.is_file():
            raise InvalidRequest(f"{source}: there is no cassette here")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{source}: the cassette cannot be read ({type(error).__name__})") from None
    return parse_cassette(data, source)


def parse_cassette(data: bytes, source: str) -> list[Exchange]:
    """Return the exchanges of a cassette in memory. Raise `InvalidRequest`, naming line and field."""
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"{source}: a cassette may have at most {MAX_BYTES:,} bytes")
    first, *lines = data.removesuffix(b"\n").split(b"\n")
    _check_header(first, source)
    if len(lines) > MAX_EXCHANGES:
        raise InvalidRequest(f"{source}: a cassette may have at most {MAX_EXCHANGES:,} exchanges")
    decoder = msgspec.json.Decoder(Exchange)
    return [_read(decoder, line, f"{source}, line {number}") for number, line in enumerate(lines, start=2)]


def save_cassette(path: str | Path, data: bytes) -> None:
    """Write a file completely or not at all. Only its owner can read it."""
    path = Path(path)
    written: Path | None = None
    try:
        # In the same directory, because a rename is atomic only within one file system.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        written = Path(name)
        with open(handle, "wb") as file:  # noqa: PTH123 - it is open already
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except OSError as error:
        if written is not None:
            with contextlib.suppress(OSError):
                written.unlink()
        raise StorageFailure(f"{path}: the cassette cannot be written ({error.strerror}).") from None


def _first_line() -> bytes:
    return msgspec.json.encode(Header(format=FORMAT, version=VERSION)) + b"\n"


def _check_header(line: bytes, source: str) -> None:
    try:
        header = msgspec.json.decode(line, type=Header)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{source}, line 1: this is not a cassette") from None
    if header.format != FORMAT:
        raise InvalidRequest(f"{source}, line 1, format: this is not a cassette")
    if header.version != VERSION:
        message = f"version {header.version} is not known here; this release reads version {VERSION}"
        raise InvalidRequest(f"{source}, line 1, version: {message}")


def _read(decoder: "msgspec.json.Decoder[Exchange]", line: bytes, place: str) -> Exchange:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        problem, field = split_error(str(error))
        raise InvalidRequest(f"{place}{f', {field}' if field else ''}: {problem}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{place}: the line is not JSON ({error})") from None
