"""A daemon that has no descriptor left for a while serves those it has, and takes new clients when there are some again."""

import errno
import resource
import socket
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from tests.daemon.rig import Daemon, daemon

from codesdk.daemon.app import _bug
from codesdk.local.directory import SOCKET
from codesdk.serving import Message, Receive, Send, Serving, listen

TIMEOUT_S = 20


@contextmanager
def no_descriptors(running: Daemon) -> Generator[None]:
    """Let the daemon open nothing more."""
    pid = running.process.pid
    highest = max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())
    before, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, most))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (before, most))


def dial(running: Daemon) -> tuple[socket.socket, socket.socket]:
    """Connect over HTTP and to the control socket; the kernel answers before the daemon takes the connections."""
    place = httpx2.URL(running.url)
    control = socket.socket(socket.AF_UNIX)
    control.settimeout(TIMEOUT_S)
    control.connect(str(running.data_dir / SOCKET))
    return socket.create_connection((place.host, place.port or 0), TIMEOUT_S), control


def test_a_daemon_without_descriptors_takes_clients_again_when_it_has_some(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        running.session()  # and a connection that stays open
        with no_descriptors(running):
            over_http, control = dial(running)
            # Answers on the open connection: by the second, the daemon has tried to take the new ones.
            for _ in range(2):
                assert running.get("/v1/health")["status"] == "ok"
        with closing(over_http), closing(control):
            over_http.sendall(b"GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert over_http.recv(100).startswith(b"HTTP/1.1 200 ")
            control.sendall(b"nonsense\n")
            assert control.recv(1000).startswith(b'{"error":')
        assert httpx2.get(f"{running.url}/v1/health", timeout=TIMEOUT_S).status_code == 200


async def answer_nothing(scope: Message, receive: Receive, send: Send) -> None:
    """An application that nobody reaches."""


async def test_who_cannot_serve_says_so_at_once(monkeypatch: pytest.MonkeyPatch):
    def load(config: uvicorn.Config) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(uvicorn.Config, "load", load)
    with closing(listen(("127.0.0.1", 0))) as listener, pytest.raises(OSError, match="Too many open files"):
        Serving(answer_nothing, listener)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), "OVERLOADED"),
        (OSError(errno.EMFILE, "Too many open files"), "OVERLOADED"),
        (RuntimeError("can't start new thread"), "OVERLOADED"),
        (OSError(errno.ENOENT, "No such file or directory"), "INTERNAL"),
        (RuntimeError("a bug"), "INTERNAL"),
    ],
    ids=repr,
)
def test_a_request_that_finds_no_room_is_to_be_tried_again_and_a_bug_is_not(error: Exception, code: str):
    found = _bug(error, "req_1")
    assert (found.code, found.retryable) == (code, code == "OVERLOADED")
