"""A socket in the data directory through which a second terminal reaches the writer.

One line of JSON in (`Command`), one line out (`{"ok": true}` or `{"error": …}`). The
socket is for the owner alone (0600). `ControlServer` runs beside an engine; `send`
is the other end.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Literal

import msgspec

from codesdk.contract.errors import CodeSDKError, ErrorInfo, InvalidRequest, StorageFailure, from_info
from codesdk.contract.messages import user
from codesdk.contract.tools import Actor, Scope
from codesdk.engine.engine import Engine
from codesdk.store.directory import SOCKET, bind_socket, socket_address

MAX_LINE_BYTES = 8 * 1024 * 1024
ANSWER_TIMEOUT_S = 30.0
TERMINAL = Actor(kind="user", id="terminal")


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to be done to a session by the process that owns it."""

    op: Literal["approve", "deny", "stop", "steer"]
    session_id: str
    task_id: str | None = None
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    scope: Scope = "once"
    reason: str | None = None
    text: str | None = None


class _Answer(msgspec.Struct, omit_defaults=True):
    ok: bool = False
    error: ErrorInfo | None = None


async def carry_out(engine: Engine, command: Command) -> None:
    """Do what a command says."""
    session = await engine.session(command.session_id)
    if command.op == "stop":
        await session.stop(command.task_id, TERMINAL, command.reason or "stopped from the terminal")
    elif command.op == "steer":
        if not command.text:
            raise InvalidRequest("Steering needs a text.")
        await session.steer([user(command.text)])
    elif not command.tool_call_id:
        raise InvalidRequest("Name the tool call that the answer is for.")
    else:
        await session.answer(
            command.tool_call_id,
            command.op,
            by=TERMINAL,
            scope=command.scope,
            reason=command.reason,
            attempt=command.attempt,
            input_hash=command.input_hash,
        )


class ControlServer:
    """Takes commands for an engine until it is closed."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._directory = directory
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. A socket left by an earlier owner is replaced: the directory's lock is ours."""
        try:
            listener = bind_socket(self._directory)
        except OSError as error:
            raise StorageFailure(f"The control socket cannot be made: {error.strerror}.") from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            (self._directory / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self._answer(line)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            return
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> _Answer:
        try:
            command = msgspec.json.decode(line, type=Command)
        except ValueError as error:
            return _Answer(error=InvalidRequest(f"Not a command: {error}.").info())
        try:
            await carry_out(self._engine, command)
        except CodeSDKError as error:
            return _Answer(error=error.info())
        return _Answer(ok=True)


async def send(directory: Path, command: Command) -> bool:
    """Have the owner of a data directory carry out a command. Return false if nobody listens."""
    try:
        with socket_address(directory) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=MAX_LINE_BYTES)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    try:
        writer.write(msgspec.json.encode(command) + b"\n")
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), ANSWER_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        raise StorageFailure("The process that owns the data directory did not answer.") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    answer = msgspec.json.decode(line, type=_Answer)
    if answer.error is not None:
        raise from_info(answer.error)
    return True
