"""`HolderService`: work in a data directory through the process that holds it.

Reads come straight from the stored log, beside its writer; actions, uploads and live events go over the
control socket. If the holder goes away, wait for another to take its place; an action is then sent again
under its key, so that it is done once.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from codesdk.contract.actions import Action, AnyAction, Caller, new_key
from codesdk.contract.api import RuntimeAuth
from codesdk.contract.codec import place_of
from codesdk.contract.errors import Busy, CodeSDKError, InvalidRequest, StorageFailure, from_info
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.process import ProcessFacts
from codesdk.contract.sender import Sender
from codesdk.contract.service import Published
from codesdk.contract.validation import check_key, checked
from codesdk.engine import Archive
from codesdk.local.control import (
    ERROR_LINE,
    MAX_LINE_BYTES,
    Check,
    Describe,
    Execute,
    Follow,
    Put,
    Request,
    Response,
)
from codesdk.local.directory import DataDir, socket_address
from codesdk.sending import send

PATIENCE_S = 10.0
PAUSE_S = 0.1
CHUNK_BYTES = 256 * 1024

R = TypeVar("R")


class HolderGone(Busy):
    """No process that can be reached holds the data directory."""


class HolderService(Archive):
    """The sessions of a data directory that another process holds. Implements `SessionService`."""

    def __init__(self, directory: DataDir, caller: Caller) -> None:
        super().__init__(directory.log, directory.blobs, caller.principal)
        self._directory = directory
        self._caller = caller

    def traced(self, sender: Sender) -> "HolderService":
        """Return the same sessions for requests that say this of themselves."""
        return HolderService(self._directory, self._caller.named(sender))

    async def execute(self, action: Action[R], *, key: str | None = None) -> R:
        """Have the holder carry out an action."""
        check_key(key)
        action = checked(action)  # else JSON would carry what is not meant: bytes become text
        assert isinstance(action, AnyAction), "an action is one of the union"
        request = Execute(action=action, caller=self._caller, key=key or new_key())
        result = await self._ask(request)
        kind = type(action).result_type()
        return msgspec.convert(result, type=kind)

    async def put_artifact(
        self, data: bytes, content_type: str, name: str | None = None, *, key: str | None = None
    ) -> ArtifactRef:
        """Have the holder store bytes that a message can attach."""
        request = Put(
            size=len(data),
            content_type=content_type,
            name=name,
            principal=self._caller.principal,
            key=key or new_key(),
        )
        return msgspec.convert(await self._ask(request, data), type=ArtifactRef)

    async def runtime_auth(self, name: str) -> RuntimeAuth:
        """Ask the holder whether a task on a runtime could begin there."""
        answer = await self._ask(Check(runtime=name, principal=self._caller.principal))
        return msgspec.convert(answer, type=RuntimeAuth)

    async def describe(self, session_id: str) -> ProcessFacts | None:
        """Ask the holder what only it knows of itself. Return None if it does not say, or not soon."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await self._ask(Describe(session_id=session_id))
            return msgspec.convert(answer, type=ProcessFacts)
        except (CodeSDKError, TimeoutError, msgspec.ValidationError):
            return None

    async def follow(self, session_id: str, after_seq: int = 0) -> AsyncGenerator[list[Published]]:
        """Yield batches of events after a seq, across changes of the holder."""
        while True:
            request = Follow(session_id=session_id, after_seq=after_seq, principal=self._caller.principal)
            reader, writer = await self._patiently(request)
            try:
                async for batch in _frames(reader):
                    after_seq = batch[-1].seq
                    yield batch
            except ConnectionError:
                pass  # the holder was killed: the next one goes on from here
            finally:
                await _hang_up(writer)

    async def _ask(self, request: Request, data: bytes = b"") -> Any:
        clock = asyncio.get_running_loop().time
        until = clock() + PATIENCE_S
        while True:
            reader, writer = await self._patiently(request, data)
            try:
                return await _result(reader)
            except (ConnectionError, EOFError) as error:
                if clock() > until:
                    raise StorageFailure(
                        "The process that holds the data directory did not answer."
                    ) from error
                await asyncio.sleep(PAUSE_S)  # lost on the way: the key makes the next try the same request
            finally:
                await _hang_up(writer)

    async def _patiently(
        self, request: Request, data: bytes = b""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request to the holder, waiting a while for a new one if it is gone."""
        line = msgspec.json.encode(request) + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise InvalidRequest(f"A request may have {MAX_LINE_BYTES:,} bytes, not {len(line):,}.")
        clock = asyncio.get_running_loop().time
        until = clock() + PATIENCE_S
        while True:
            try:
                reader, writer = await connect(self._directory.path)
                await send(writer, line + data)
                return reader, writer
            except (ConnectionError, HolderGone):
                if clock() > until:
                    raise HolderGone(
                        f"No process holds the data directory {self._directory.path} any more. Open it again."
                    ) from None
                await asyncio.sleep(PAUSE_S)


async def connect(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the holder of a directory. Raise `HolderGone` if nobody listens."""
    try:
        with socket_address(directory) as address:
            return await asyncio.open_unix_connection(address, limit=MAX_LINE_BYTES)
    except (FileNotFoundError, ConnectionRefusedError):
        raise HolderGone(f"Nobody holds the data directory {directory}.") from None
    except OSError as error:
        raise StorageFailure(
            f"The control socket in {directory} cannot be used: {error.strerror}."
        ) from error


async def is_held(directory: Path) -> bool:
    """Return whether the process that holds a data directory can be reached."""
    try:
        _, writer = await connect(directory)
    except CodeSDKError:
        return False
    await _hang_up(writer)
    return True


async def _result(reader: asyncio.StreamReader) -> Any:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    answer = msgspec.json.decode(line, type=Response)
    if answer.error is not None:
        raise from_info(answer.error)
    return answer.result


async def _frames(reader: asyncio.StreamReader) -> AsyncGenerator[list[Published]]:
    """Yield what a holder streams, until it closes the connection."""
    try:
        await _result(reader)
    except EOFError:
        return
    rest = b""
    while chunk := await reader.read(CHUNK_BYTES):
        # A half line at the end of a connection is dropped: the next one starts after the last whole event.
        *lines, rest = (rest + chunk).split(b"\n")
        if lines and lines[-1].startswith(ERROR_LINE):
            answer = msgspec.json.decode(lines.pop(), type=Response)
            raise from_info(answer.error) if answer.error else EOFError
        if lines:
            yield [Published(place_of(frame)[0], frame) for frame in lines]


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
