"""Opens a socket that listens inside a sandboxed network and is served from outside.

A process with threads cannot enter another user namespace, so a small one does it: it joins the user and
network namespaces of the sandbox's first process, listens on its loopback, and passes the socket back. It
runs as a single file, without the package: it must start fast and import little.
"""

import array
import ctypes
import fcntl
import os
import socket
import subprocess
import sys

PROXY_PORT = 3128
_GET_USER_NAMESPACE = 0xB701
_DEADLINE_S = 20.0


def listen_inside(pid: int, port: int = PROXY_PORT) -> socket.socket:
    """Return a socket that listens on 127.0.0.1 in the network of a process. Blocking; run it in a thread.

    Raise `OSError` if that fails.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_DEADLINE_S)
        command = [sys.executable, "-I", "-S", __file__, str(pid), str(port), str(theirs.fileno())]
        done = subprocess.run(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            timeout=_DEADLINE_S,
            check=False,
        )
        if done.returncode != 0:
            raise OSError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        _, (fd, *_), _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fd)


def main(pid: str, port: str, back: str) -> None:
    """Enter the namespaces, listen, and pass the socket back."""
    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    for namespace in (fcntl.ioctl(network, _GET_USER_NAMESPACE), network):
        if libc.setns(namespace, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    with socket.socket(fileno=int(back)) as sink:
        sink.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))])


if __name__ == "__main__":
    main(*sys.argv[1:])
