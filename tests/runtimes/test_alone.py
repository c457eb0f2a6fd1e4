"""The namespace that real programs are tested in: what it lets through, and what it counts."""

import socket
from pathlib import Path

import pytest
from tests.runtimes.alone import alone, tried_outside


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_whoever_tries_to_reach_something_outside_is_counted(kind: socket.SocketKind):
    with alone(), socket.socket(socket.AF_INET, kind) as outward:
        assert tried_outside() == 0
        with pytest.raises(OSError, match="unreachable"):
            outward.connect(("192.0.2.1", 443))
        assert tried_outside() == 1


def test_loopback_can_be_reached_and_is_not_counted():
    with alone(), socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
        assert tried_outside() == 0


def test_afterwards_everything_is_as_before():
    def here() -> Path:
        return Path("/proc/thread-self/ns/net").readlink()

    before = here()
    with alone():
        assert here() != before
    assert here() == before
