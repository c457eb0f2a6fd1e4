"""What the attacks in `attacks.py` aim at: a workspace, and around it what must stay out of reach."""

import json
import os
import socket
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.sandbox.attacks import SECRET


class Stage(NamedTuple):
    """Where things are. `told` is what an attacking program may know."""

    workspace: Path
    outside: Path
    told: dict[str, Any]

    def argument(self, **more: Any) -> str:
        """Return what a program is told, as JSON."""
        return json.dumps(self.told | more)


@contextmanager
def set_stage(root: Path, owner: tuple[int, int] | None = None) -> Generator[Stage]:
    """Lay out a workspace and its surroundings below a directory. The workspace goes to `owner`, if one is given."""
    workspace, outside = root / "workspace", root / "outside"
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "config").write_text("[core]\n")
    (workspace / "file.txt").write_text("inside\n")
    outside.mkdir()
    (outside / "credential").write_text(SECRET)
    with ExitStack() as held:
        tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = f"codesdk-test-{os.getpid()}-{tcp.getsockname()[1]}"
        _listen(held, "\0" + abstract)
        with _inside(workspace):
            _listen(held, "door.sock")
        if owner is not None:
            _give(workspace, *owner)
        yield Stage(
            workspace,
            outside,
            {
                "secret": SECRET,
                "credential": str(outside / "credential"),
                "outside": str(outside),
                "port": tcp.getsockname()[1],
                "abstract": abstract,
                "socket": "door.sock",
                "pid": os.getpid(),
            },
        )


def _listen(held: ExitStack, address: str) -> None:
    listener = held.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(address)
    listener.listen()


@contextmanager
def _inside(directory: Path) -> Generator[None]:
    """A socket's address must be short, so it is given relative to its directory."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(directory)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _give(workspace: Path, uid: int, gid: int) -> None:
    for path in (workspace, *workspace.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)
        if path.is_socket():
            path.chmod(0o777)


@contextmanager
def open_directory() -> Generator[Path]:
    """Give a directory that everybody may pass through; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory(prefix="codesdk-", dir="/tmp", ignore_cleanup_errors=True) as path:
        Path(path).chmod(0o755)
        yield Path(path)
