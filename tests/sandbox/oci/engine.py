"""A container engine for the tests: Debian's Podman, in a directory and a mount namespace of its own.

Its one image holds busybox and the system's Python, copied from this machine, since nothing is fetched.
"""

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import docker
import docker.errors
from tests.sandbox.attacks import SECRET

IMAGE = "codesdk-test:1"
BARE_IMAGE = "codesdk-bare:1"
_LEFT_OUT = ("test", "idlelib", "ensurepip", "lib2to3", "pydoc_data", "config-")
_START_S = 60


class RunningEngine(NamedTuple):
    """Where it listens, and a client to look at it with."""

    socket: str
    client: docker.APIClient

    def containers(self) -> list[str]:
        """Return the ids of all containers, running or not."""
        return [item["Id"] for item in self.client.containers(all=True)]

    def kill(self, container_id: str) -> None:
        """Kill a container, which then removes itself; who must know that it is gone looks.

        Podman looks at how it ended before it answers, and says so with an error if it was removed before that.
        """
        with contextlib.suppress(docker.errors.APIError):
            self.client.kill(container_id)


@contextlib.contextmanager
def running_engine() -> Generator[RunningEngine]:
    """Start an engine, and end it with everything that is left in it. Needs root."""
    home = Path(tempfile.mkdtemp(prefix="oci-"))  # short: paths of sockets have few characters
    home.chmod(0o755)
    # Locks of its own: those in shared memory are one set for all engines of a machine.
    (home / "containers.conf").write_text('[engine]\nlock_type = "file"\n')
    env = dict(os.environ) | {"CONTAINERS_CONF": f"{home}/containers.conf"}
    podman = ["podman", "--root", f"{home}/root", "--runroot", f"{home}/run", "--tmpdir", f"{home}/tmp"]
    podman += ["--cgroup-manager", "cgroupfs", "--runtime", "runc", "--events-backend", "none"]
    try:
        _import(podman, env, IMAGE, _files_with_python())
        _import(podman, env, BARE_IMAGE, [])
        address = f"{home}/engine.sock"
        service = ["unshare", "--mount", *podman, "system", "service", "--time", "0", f"unix://{address}"]
        # An engine may hand on the proxies of its own environment, passwords and all.
        proxies = {
            "http_proxy": f"http://user:{SECRET}@proxy.invalid",
            "HTTPS_PROXY": f"http://{SECRET}@proxy.invalid",
        }
        # In its own directory: the monitor of a container that ran out of memory makes a file `oom` where it is.
        with subprocess.Popen(service, cwd=home, env=env | proxies, stdin=subprocess.DEVNULL) as process:
            client = None
            try:
                client = _connect(address, process)
                Path(address).chmod(0o666)
                engine = RunningEngine(address, client)
                yield engine
                for container in engine.containers():
                    engine.kill(container)
            finally:
                if client is not None:
                    client.close()
                process.terminate()
    finally:
        _remove(home)


def _import(
    podman: list[str], env: dict[str, str], name: str, files: list[tuple[str, Path | str | None]]
) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for target, source in files:
            _add(archive, target, source)
    subprocess.run(
        ["unshare", "--mount", *podman, "import", "-", name],
        input=data.getvalue(),
        env=env,
        check=True,
        capture_output=True,
    )


def _add(archive: tarfile.TarFile, target: str, source: Path | str | None) -> None:
    """Add a copy of a file, a link to a name, or a directory."""
    if isinstance(source, Path):
        archive.add(source.resolve(), target, recursive=False)
        return
    entry = tarfile.TarInfo(target)
    entry.mode = 0o1777 if target == "tmp" else 0o755
    entry.type = tarfile.DIRTYPE if source is None else tarfile.SYMTYPE
    entry.linkname = source or ""
    archive.addfile(entry)


def _files_with_python() -> list[tuple[str, Path | str | None]]:
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    files: list[tuple[str, Path | str | None]] = [
        (name, None) for name in ("tmp", "bin", "usr", "usr/bin", "etc")
    ]
    files.append(("bin/busybox", busybox))
    files += [(f"bin/{name}", "busybox") for name in applets if name != "busybox"]
    files += [("usr/bin/env", busybox), ("usr/bin/python3", Path("/usr/bin/python3"))]
    library = Path("/usr/bin/python3").resolve().name
    modules = [path for path in _below(Path(f"/usr/lib/{library}")) if not _is_left_out(path)]
    files += [(str(path)[1:], None if path.is_dir() else path) for path in modules]
    programs = [Path("/usr/bin/python3"), *(path for path in modules if path.suffix == ".so")]
    return files + [(path[1:], Path(path)) for path in sorted(_libraries(programs))]


def _below(directory: Path) -> Iterator[Path]:
    yield directory
    yield from sorted(directory.rglob("*"))


def _is_left_out(path: Path) -> bool:
    return any(part.startswith(_LEFT_OUT) for part in path.parts) or not path.exists()


def _libraries(programs: list[Path]) -> set[str]:
    """Return the shared libraries that programs are linked with, by the names under which they are looked up."""
    found = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", found))


def _connect(path: str, process: "subprocess.Popen[bytes]") -> docker.APIClient:
    deadline = time.monotonic() + _START_S
    while not _listens(path):
        assert process.poll() is None, "the engine ended"
        assert time.monotonic() < deadline, "the engine does not start"
        time.sleep(0.02)
    return docker.APIClient(base_url=f"unix://{path}", version="auto", timeout=60)


def _listens(path: str) -> bool:
    """Return whether somebody listens at a socket: it is there a moment before."""
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(path) == 0


def _remove(home: Path) -> None:
    """End what the engine left, and remove its directory.

    Podman keeps a process for five minutes after each command, which would then make the directory again.
    """
    deadline = time.monotonic() + _START_S
    while left := [pid for pid, words in command_lines() if str(home) in words]:
        assert time.monotonic() < deadline, f"processes of the engine stay: {left}"
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(home)


def command_lines() -> Iterator[tuple[int, str]]:
    """Return the processes of this machine, but this one, with what they were started as."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes().decode("utf-8", "replace")
