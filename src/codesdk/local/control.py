"""The control socket of a data directory: other processes work through the one that holds it.

One request per connection: a line of JSON in (`Execute`, `Follow`, `Put`, `Check` or `Describe`), a line out with the result or
the error. After `Put` come its bytes; after the answer to `Follow` come stored frames, one per line, until
either side closes. Only the owner of the directory can use the socket (0600), and is trusted to name the
caller.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from codesdk.contract.actions import LOCAL, AnyAction, Caller
from codesdk.contract.errors import Busy, CodeSDKError, ErrorInfo, InvalidRequest, StorageFailure
from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.contract.process import ProcessFacts
from codesdk.contract.validation import explain
from codesdk.local.directory import SOCKET, bind_socket
from codesdk.sending import send
from codesdk.serving import COUNTS, Acceptor, Limits, Seat, as_streams

if TYPE_CHECKING:  # whoever only sends requests has no engine
    from codesdk.engine import Engine

MAX_LINE_BYTES = 8 * 1024 * 1024


class Execute(msgspec.Struct, frozen=True, kw_only=True, tag="execute"):
    """Carry out an action."""

    action: AnyAction
    caller: Caller = Caller()
    key: str | None = None


class Follow(msgspec.Struct, frozen=True, kw_only=True, tag="follow"):
    """Send a session's events after a seq, stored ones first, then live ones."""

    session_id: str
    after_seq: int = 0
    principal: str = LOCAL


class Put(msgspec.Struct, frozen=True, kw_only=True, tag="put"):
    """Store the bytes that follow this line."""

    size: int
    content_type: str
    name: str | None = None
    principal: str = LOCAL
    key: str | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Find out whether a task on a runtime could begin here."""

    runtime: str
    principal: str = LOCAL


class Describe(msgspec.Struct, frozen=True, kw_only=True, tag="describe"):
    """Say what only the holder knows of itself, for a session's support bundle."""

    session_id: str


Request = Execute | Follow | Put | Check | Describe


class Response(msgspec.Struct, omit_defaults=True):
    """The result or the error of a request."""

    error: ErrorInfo | None = None
    result: Any = None


ERROR_LINE = b'{"error":'
"""Prefix of the line that ends a stream of events with an error. No stored frame begins like this."""


_REFUSAL = Response(error=Busy("There are too many connections. Try again in 5 s.").info())


class ControlServer:
    """Serves requests to an engine until it is closed."""

    def __init__(
        self,
        engine: "Engine",
        directory: Path,
        limits: Limits | None = None,
        *,
        describe: Callable[[str], Awaitable[ProcessFacts]] | None = None,
    ) -> None:
        self._engine = engine
        self._facts = describe
        self._directory = directory
        self._limits = limits or Limits()
        self._acceptor: Acceptor | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen. Replace a socket left by an earlier holder: the directory's lock is ours."""
        try:
            listener = bind_socket(self._directory)
        except OSError as error:
            raise StorageFailure(f"The control socket cannot be made: {error.strerror}.") from error
        refusal = msgspec.json.encode(_REFUSAL) + b"\n"
        self._acceptor = Acceptor(listener, as_streams(self._serve, MAX_LINE_BYTES), self._limits, refusal)

    async def close(self) -> None:
        """Stop listening, remove the socket and close all connections."""
        if self._acceptor is not None:
            self._acceptor.close()
            (self._directory / SOCKET).unlink(missing_ok=True)
        for client in list(self._clients):
            client.close()

    async def _serve(self, seat: Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            async with asyncio.timeout(self._limits.head_s):
                line = await _read_line(reader)
            seat.work()
            if line:
                await self._answer(line, reader, writer)
        except TimeoutError:
            COUNTS.timed_out += 1
            await _send(writer, Response(error=_too_slow().info()))
        except ConnectionError:
            return  # the client is gone
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _answer(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            match request := _decoded(line):
                case Follow():
                    await self._stream(request, writer)
                    return
                case Put():
                    result = await self._put(request, reader)
                case Check():
                    result = await self._engine.runtime_auth(request.runtime, request.principal)
                case Describe():
                    result = await self._describe(request)
                case Execute():
                    result = await self._engine.execute(request.action, request.caller, request.key)
            answer = Response(result=msgspec.to_builtins(result))
        except CodeSDKError as error:
            answer = Response(error=error.info())
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        except Exception as error:  # noqa: BLE001 - the client is told, and the next one is served
            answer = Response(error=CodeSDKError(f"CodeSDK failed ({type(error).__name__}: {error}).").info())
        await _send(writer, answer)

    async def _describe(self, request: Describe) -> ProcessFacts:
        if self._facts is None:
            raise InvalidRequest("This process says nothing of itself.")
        return await self._facts(request.session_id)

    async def _put(self, request: Put, reader: asyncio.StreamReader) -> Any:
        limit = self._engine.ports.limits.max_artifact_bytes
        if not 0 <= request.size <= limit:
            raise InvalidRequest(f"An artifact may have {limit:,} bytes; this one has {request.size:,}.")
        data = await self._read_body(reader, request.size)
        return await self._engine.put_artifact(
            data, request.content_type, request.name, principal=request.principal, key=request.key
        )

    async def _read_body(self, reader: asyncio.StreamReader, size: int) -> bytes:
        try:
            async with asyncio.timeout(self._limits.body_deadline_s(size)):
                return await reader.readexactly(size)
        except TimeoutError:
            COUNTS.timed_out += 1
            raise _too_slow() from None

    async def _stream(self, request: Follow, writer: asyncio.StreamWriter) -> None:
        batches = self._engine.follow(request.session_id, request.after_seq, principal=request.principal)
        await self._engine.archive.as_principal(request.principal).session(request.session_id)
        await send(writer, msgspec.json.encode(Response()) + b"\n")
        async with contextlib.aclosing(batches):
            async for batch in batches:
                # A reader that falls behind reads from the store, so its events do not pile up here.
                await send(writer, b"".join([item.frame + b"\n" for item in batch]))


async def _send(writer: asyncio.StreamWriter, answer: Response) -> None:
    with contextlib.suppress(ConnectionError):  # the client may be gone
        await send(writer, msgspec.json.encode(answer) + b"\n")


def _too_slow() -> CodeSDKError:
    return CodeSDKError("The request did not arrive in time. Send it again, without pauses.", code="TIMEOUT")


def _decoded(line: bytes) -> Request:
    if not line.endswith(b"\n"):
        raise InvalidRequest(f"A request is one line of at most {MAX_LINE_BYTES:,} bytes.")
    if has_too_many_values(line):
        raise InvalidRequest(f"A request may hold {MOST_VALUES:,} values.")
    try:
        return msgspec.json.decode(line, type=Request)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Invalid request: {explain(error, Request)}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"Invalid request: {error}.") from None


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """Return a line with its newline, nothing at the end of the stream, or an incomplete last line."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError:
        return await reader.read(1)
