"""A runtime's environment, made from nothing: the folders in which a program keeps its own state, and its variables.

Nothing of our own environment is passed on. Every folder that a program writes to lies below one root: that of
the session in the credential namespace, one that all namespaces share, or a temporary one that goes with the session.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from codesdk.contract.errors import StorageFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.redaction import Redactor

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
LOGINS = frozenset({".credentials.json"})
"""Files in which programs keep a login. They are the programs' own, and hold a secret for as long as they are there."""
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of one session's runtime. They exist, and only their owner can look into them."""

    root: Path
    lasting: bool
    """Whether they are still there when the session is opened again."""

    @property
    def home(self) -> Path:
        """What HOME points to."""
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        """What TMPDIR points to. Not above or below any of the others: some programs refuse a home in there."""
        return self.root / "tmp"

    def folder(self, name: str) -> Path:
        """Return a folder of the runtime's own, made if need be."""
        return _make(self.root / name)

    def remove(self) -> None:
        """Delete everything that was made for one session only. Must not raise."""
        if not self.lasting:
            shutil.rmtree(self.root, ignore_errors=True)


def make_places(env: RuntimeEnv, runtime: str, session_id: str) -> Places:
    """Make the folders of a session's runtime, or find those that an earlier task left. Blocking, but short."""
    lasting = env.isolation.level != "ephemeral" and env.state_dir != ""
    try:
        root = _root(env, runtime, session_id) if lasting else Path(tempfile.mkdtemp(prefix="codesdk-"))
        places = Places(root=root, lasting=lasting)
        for folder in (places.home, places.tmp, *(root / name for name in _XDG.values())):
            _make(folder)
    except OSError as error:
        raise StorageFailure(
            f"The folders for the runtime {runtime} could not be made ({error.strerror}). Look at the data directory."
        ) from error
    return places


def forget_session(state_dir: str, session_id: str) -> None:
    """Delete what the runtimes of a session kept. Blocking; must not raise."""
    for root in session_folders(state_dir, session_id):
        shutil.rmtree(root, ignore_errors=True)


def clean_session(state_dir: str, session_id: str, redactor: Redactor) -> None:
    """Delete what the runtimes of a session kept if a secret is in it: a model may say one, and programs write down
    what it says. The transcript, from which a program goes on without its own copy, has it without. A login stays.
    For a session whose programs have ended. Blocking; must not raise.
    """
    for root in session_folders(state_dir, session_id):
        with contextlib.suppress(OSError):
            if any(redactor.finds(_told_by(path, root)) for path in root.rglob("*")):
                _empty(root)


def session_folders(state_dir: str, session_id: str) -> list[Path]:
    """Return the folders in which the runtimes of a session keep their state."""
    return list(Path(state_dir).glob(f"*/*/{_segment(session_id)}")) if state_dir else []


def variables(places: Places, env: RuntimeEnv, own: Mapping[str, str]) -> dict[str, str]:
    """Return all the environment that a program gets: the folders, the session's variables, then the runtime's own."""
    plain = {
        "PATH": SEARCH_PATH,
        "LANG": "C.UTF-8",
        "HOME": str(places.home),
        "TMPDIR": str(places.tmp),
    }
    folders = {name: str(places.root / folder) for name, folder in _XDG.items()}
    return {**plain, **folders, **env.env, **own}


_XDG = {
    "XDG_CONFIG_HOME": "config",
    "XDG_DATA_HOME": "data",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
    "XDG_RUNTIME_DIR": "run",
}


def _told_by(path: Path, root: Path) -> bytes:
    """Return all that a file or a folder tells, by its name and its content."""
    readable = path.is_file() and not path.is_symlink() and path.name not in LOGINS
    return bytes(path.relative_to(root)) + b"\n" + (path.read_bytes() if readable else b"")


def _empty(root: Path) -> None:
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            if name not in LOGINS:
                Path(folder, name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a login is in it
            Path(folder).rmdir()


def _root(env: RuntimeEnv, runtime: str, session_id: str) -> Path:
    """Return where a session's state stays. Each has its own: two live programs must not share theirs."""
    owner = "shared" if env.isolation.level == "shared" else f"ns-{_segment(env.credential_namespace)}"
    return _make(Path(env.state_dir) / owner / _segment(runtime)) / _segment(session_id)


def _segment(name: str) -> str:
    """Return a name as one part of a path; a name that cannot be one is told apart by its hash."""
    if _SAFE.fullmatch(name):
        return name
    return "x-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _make(folder: Path) -> Path:
    """Make a folder and those above it, all of them for their owner only."""
    if not folder.parent.is_dir():
        _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
