"""A container engine behind its Docker socket: calls in threads, and streams on the event loop.

The `docker` library makes the calls; the two requests whose connection becomes a stream are written here, so
that no thread waits for a command.
"""

import asyncio
import importlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from codesdk.sandbox.backend import SandboxUnavailable

_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
_CALL_S = 60.0
_THREADS = 8
_HEAD_BYTES = 16_384
_START = (
    "start one with `systemctl start docker` or `systemctl start podman.socket`, "
    "and name it with DOCKER_HOST=unix:///path/to/its.sock if its socket is elsewhere"
)

T = TypeVar("T")


class EngineRefused(Exception):
    """The engine answered a call with an error, in its own words."""


class EngineMissing(EngineRefused):
    """What the call was about does not exist in the engine."""


class Connection(msgspec.Struct, frozen=True):
    """A request that became a stream."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Engine:
    """One engine. Must be closed."""

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="codesdk-oci")
        self._client: Any = None

    async def connect(self) -> None:
        """Agree on a version of the API. Raise `SandboxUnavailable` if nobody answers."""
        self._client = await self._in_thread(lambda: _client(self._path))

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Make a call of the `docker` library's API client, in a thread.

        Raise `EngineMissing`, `EngineRefused`, or `SandboxUnavailable` if the engine does not answer.
        """
        return await self._in_thread(lambda: getattr(self._client, name)(*args, **options))

    async def stream(self, path: str, body: Mapping[str, Any] | None = None) -> Connection:
        """Make a request whose connection carries a stream from then on. Raises as `call` does."""
        try:
            async with asyncio.timeout(_CALL_S):
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    writer.write(_request(f"/v{self._client.api_version}{path}", body))
                    await _require_upgraded(reader)
                except BaseException:
                    writer.close()
                    raise
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise _silent(self._path, error) from None
        return Connection(reader, writer)

    def close(self) -> None:
        """Close connections and let the threads end, without waiting for calls in progress."""
        self._threads.shutdown(wait=False)
        if self._client is not None:
            self._client.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: _translated(self._path, work)
        )


def find_socket(given: str | None) -> str:
    """Return the engine's socket: the one given, that of DOCKER_HOST, or one in a usual place."""
    address = given or os.environ.get("DOCKER_HOST") or next(filter(_is_socket, _SOCKETS), None)
    if address is None:
        raise SandboxUnavailable(f"No container engine was found: {_START}.")
    if "://" in address and not address.startswith("unix://"):
        raise SandboxUnavailable(
            f"The container engine at {address} cannot be used: it must be on this machine, because the workspace "
            "is mounted from here. Name its socket as unix:///path/to/its.sock."
        )
    path = address.removeprefix("unix://")
    if not _is_socket(path):
        raise SandboxUnavailable(f"There is no container engine at {path}: {_START}.")
    return path


def _is_socket(path: str) -> bool:
    try:
        return Path(path).is_socket()
    except OSError:
        return False


def _client(path: str) -> Any:
    with socket.socket(socket.AF_UNIX) as probe:  # the library leaks the socket of a connection that fails
        probe.settimeout(_CALL_S)
        probe.connect(path)
    docker = importlib.import_module("docker")
    return docker.APIClient(base_url=f"unix://{path}", version="auto", timeout=_CALL_S)


def _translated(path: str, work: Callable[[], T]) -> T:
    """Do the work, raising failures as our own errors."""
    errors = importlib.import_module("docker.errors")
    requests = importlib.import_module("requests.exceptions")
    try:
        return work()
    except errors.NotFound as error:
        raise EngineMissing(_words(error)) from None
    except errors.APIError as error:
        raise EngineRefused(_words(error)) from None
    except (errors.DockerException, requests.RequestException, OSError) as error:
        raise _silent(path, error) from None


def _words(error: Any) -> str:
    return str(error.explanation or error)[:2_000]


def _silent(path: str, error: BaseException) -> SandboxUnavailable:
    permission = "PermissionError" in repr(error) or "Permission denied" in str(error)
    what = "may not be used by this user" if permission else "does not answer"
    then = "add the user to the group that owns the socket" if permission else _START
    return SandboxUnavailable(f"The container engine at {path} {what}: {then}.", retryable=not permission)


def _request(path: str, body: Mapping[str, Any] | None) -> bytes:
    data = json.dumps(body or {}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def _require_upgraded(reader: asyncio.StreamReader) -> None:
    """Read the head of the answer. The engine may say 200 as well as 101 for a stream."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status in (101, 200):
        return
    words = (await reader.read(_HEAD_BYTES)).decode("utf-8", "replace")
    raise (EngineMissing if status == 404 else EngineRefused)(words)
