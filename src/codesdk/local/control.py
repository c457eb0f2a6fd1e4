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
from codesdk.engine import Engine, revoke, undo
from codesdk.local.directory import SOCKET, bind_socket, socket_address

MAX_LINE_BYTES = 8 * 1024 * 1024
ANSWER_TIMEOUT_S = 30.0
TERMINAL = Actor(kind="user", id="terminal")


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to be done to a session by the process that owns it."""

    op: Literal["approve", "deny", "stop", "steer", "revoke", "undo"]
    session_id: str
    task_id: str | None = None
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    scope: Scope = "once"
    reason: str | None = None
    text: str | None = None
    tool: str | None = None


class _Answer(msgspec.Struct, omit_defaults=True):
    ok: bool = False
    error: ErrorInfo | None = None


_TOO_LONG = _Answer(
    error=InvalidRequest(f"A command is one line of at most {MAX_LINE_BYTES:,} bytes.").info()
)


async def carry_out(engine: Engine, command: Command) -> None:
    """Do what a command says."""
    session = await engine.session(command.session_id)
    if command.op == "stop":
        await session.stop(command.task_id, TERMINAL, command.reason or "stopped from the terminal")
    elif command.op == "undo":
        await undo(session, TERMINAL, command.tool_call_id)
    elif command.op == "steer":
        if not command.text:
            raise InvalidRequest("Steering needs a text.")
        await session.steer([user(command.text)])
    elif command.op == "revoke":
        if not command.tool:
            raise InvalidRequest("Name the tool that is to be asked about again.")
        await revoke(session, command.tool, TERMINAL)
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
        self._clients: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen. A socket left by an earlier owner is replaced: the directory's lock is ours."""
        try:
            listener = bind_socket(self._directory)
        except OSError as error:
            raise StorageFailure(f"The control socket cannot be made: {error.strerror}.") from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        """Stop listening, remove the socket and hang up."""
        if self._server is not None:
            self._server.close()
            (self._directory / SOCKET).unlink(missing_ok=True)
        for client in list(self._clients):
            client.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            while line := await _read_line(reader):
                answer = await self._answer(line) if line.endswith(b"\n") else _TOO_LONG
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
                if answer is _TOO_LONG:
                    return
        except ConnectionError:
            return
        finally:
            self._clients.discard(writer)
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
        except Exception as error:  # noqa: BLE001 - who asked must hear of it, and the next one be served
            return _Answer(error=CodeSDKError(f"CodeSDK failed ({type(error).__name__}: {error}).").info())
        return _Answer(ok=True)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """Return a line with its end, nothing at the end of the stream, or what there is of a line without an end."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError:
        return await reader.read(1)


async def send(directory: Path, command: Command) -> bool:
    """Have the owner of a data directory carry out a command. Return false if nobody listens."""
    line = msgspec.json.encode(command) + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise InvalidRequest(f"A command may have {MAX_LINE_BYTES:,} bytes, not {len(line):,}.")
    try:
        with socket_address(directory) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=MAX_LINE_BYTES)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError as error:
        raise StorageFailure(
            f"The control socket in {directory} cannot be used: {error.strerror}."
        ) from error
    try:
        writer.write(line)
        await writer.drain()
        answered = await asyncio.wait_for(reader.readline(), ANSWER_TIMEOUT_S)
        answer = msgspec.json.decode(answered, type=_Answer)
    except (OSError, TimeoutError, ValueError) as error:
        raise StorageFailure("The process that owns the data directory did not answer.") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if answer.error is not None:
        raise from_info(answer.error)
    return True
