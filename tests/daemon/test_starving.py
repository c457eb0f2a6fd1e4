"""Clients that only take: a daemon with few descriptors goes on working for everybody else."""

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.daemon.rig import daemon

FEW = 160


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))


@contextmanager
def _idle(url: str, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Keep connections open that say nothing, or half a request."""
    address = urlsplit(url)
    assert address.hostname is not None
    with ExitStack() as opened:
        clients: list[socket.socket] = []
        for _ in range(count):
            client = socket.create_connection((address.hostname, address.port or 0), timeout=30)
            clients.append(opened.enter_context(client))
            if said:
                client.sendall(said)
        yield clients


def _cut(text: str, why: str) -> float:
    found = re.search(rf'codesdk_connections_cut_total{{why="{why}"}} (\S+)', text)
    assert found is not None, text
    return float(found[1])


def test_idle_and_half_sent_connections_starve_nobody(tmp_path: Path):
    half = b"POST /v1/sessions HTTP/1.1\r\nHost: loc"
    options = ("--max-connections-per-peer", "1000")  # everyone here has the same address
    with daemon(tmp_path / "data", *options, limit=_few_files) as running:
        with _idle(running.url, 2 * FEW), _idle(running.url, FEW, half):
            session = running.session()
            running.run(session)
            assert running.get(f"/v1/sessions/{session}/verify")["ok"] is True
            metrics = running.http.get("/v1/metrics").text
        assert _cut(metrics, "evicted") > FEW
        running.run(session)


def test_one_address_does_not_get_all_connections(tmp_path: Path):
    with daemon(tmp_path / "data", "--max-connections-per-peer", "5") as running:
        running.get("/v1/sessions")  # keeps its connection
        with _idle(running.url, 10) as clients:
            answer = clients[-1].recv(4096)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b'"code":"OVERLOADED"' in answer
            assert _cut(running.http.get("/v1/metrics").text, "refused") == 6
