"""A runtime's environment, made from nothing: the folders in which a program keeps its own state, and its variables.

Nothing of our own environment is passed on. Every folder that a program writes to is below one root: the session's in
its credential namespace, one that all namespaces share, or a temporary one that is removed with the session.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import StorageFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.redaction import Redactor
from codesdk.runtimes.program.agent_files import holds_secret

LOGIN = "login"
"""Where a namespace's login to a program is, in place of a session's id."""
_SHORTEST_TOKEN = 24
"""All other parts of an address are shorter."""
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of one session's runtime. They exist, and only their owner can look into them."""

    root: Path
    lasting: bool
    """Whether they stay until the session is opened again."""

    @property
    def home(self) -> Path:
        """What HOME points to."""
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        """What TMPDIR points to. Apart from all others: some programs refuse a home that is in there."""
        return self.root / "tmp"

    def folder(self, name: str) -> Path:
        """Return a folder of the runtime's own, and make it if it is missing."""
        return make_folder(self.root / name)

    def remove(self) -> None:
        """Delete everything that was made for one session only. Must not raise."""
        if not self.lasting:
            _remove(self.root)


def operator_folder() -> Path:
    """Return the folder of whoever runs CodeSDK, for what belongs to no data directory. It need not exist."""
    home = os.environ.get("XDG_DATA_HOME", "")
    # A relative one would depend on where we are, which may be a workspace.
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "codesdk"


def search_path_outside(workspace: str | None = None) -> str:
    """Return the folders of our own search path that are absolute and outside of a workspace."""
    inside = None if workspace is None else Path(workspace).resolve()
    folders = [Path(folder) for folder in os.get_exec_path() if Path(folder).is_absolute()]
    return os.pathsep.join(
        str(folder) for folder in folders if inside is None or not folder.resolve().is_relative_to(inside)
    )


def make_places(env: RuntimeEnv, runtime: str, session_id: str) -> Places:
    """Make the folders of a session's runtime, or find those that an earlier task left. Blocking, but short."""
    import tempfile

    lasting = env.isolation.level != "ephemeral" and env.state_dir != ""
    try:
        root = _root(env, runtime, session_id) if lasting else Path(tempfile.mkdtemp(prefix="codesdk-"))
        places = Places(root=root, lasting=lasting)
        for folder in (places.home, places.tmp, *(root / name for name in _XDG.values())):
            make_folder(folder)
    except OSError as error:
        raise StorageFailure(
            f"The folders for the runtime {runtime} could not be made ({error.strerror}). Check the data directory."
        ) from error
    return places


def forget_session(state_dir: str, session_id: str) -> None:
    """Delete what the runtimes of a session kept. Blocking; must not raise."""
    for root in session_folders(state_dir, session_id):
        _remove(root)


def _remove(root: Path) -> None:
    """Delete a folder, as far as that can be done."""
    import shutil
    import subprocess

    try:
        shutil.rmtree(root, ignore_errors=True)
    except RecursionError:  # folders that lie deeper than Python goes
        with contextlib.suppress(OSError):
            subprocess.run(["/bin/rm", "-rf", "--", root], check=False, env={}, stderr=subprocess.DEVNULL)


def clean_session(state_dir: str, session_id: str, redactor: Redactor) -> None:
    """Delete what the runtimes of a session kept if a secret is in it, or if it is more than can be searched.

    A login is none of it: that lies in the folder of its namespace, to which a session has a link at most. A model may say a secret, and programs write down what it says. Without its own copy a program goes on from the
    transcript, which does not have it. For a session whose programs have ended. Blocking; must not raise.
    """
    for root in session_folders(state_dir, session_id):
        if holds_secret(root, redactor):
            _remove(root)


def login_folder(state_dir: str, namespace: str, entry: RuntimeEntry) -> Path:
    """Return where a program keeps a namespace's login, whether or not there is one."""
    return Path(state_dir) / _owner(namespace) / _segment(entry.name) / LOGIN / entry.state_folder


def make_folder(folder: Path) -> Path:
    """Make a folder and those above it, all of them for their owner only."""
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def session_folders(state_dir: str, session_id: str) -> list[Path]:
    """Return the folders in which the runtimes of a session keep their state."""
    return list(Path(state_dir).glob(f"*/*/{_segment(session_id)}")) if state_dir else []


def variables(places: Places, env: RuntimeEnv, own: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a program: the folders, the session's variables, then the runtime's own."""
    from codesdk.processes import SEARCH_PATH  # of no use to whoever only looks at the runtimes

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


NETWORK = (
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""How this machine reaches the network. A program that talks to its provider by itself needs the same."""


def network_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return those of our own variables that say how the network is reached. For programs that use it."""
    return {name: environment[name] for name in NETWORK if environment.get(name)}


def _root(env: RuntimeEnv, runtime: str, session_id: str) -> Path:
    """Return where a session's state is kept. Each has its own: two live programs must not share theirs."""
    owner = "shared" if env.isolation.level == "shared" else _owner(env.credential_namespace)
    return make_folder(Path(env.state_dir) / owner / _segment(runtime)) / _segment(session_id)


def _owner(namespace: str) -> str:
    return f"ns-{_segment(namespace)}"


def _segment(name: str) -> str:
    """Return a name as one part of a path; a name that cannot be one is replaced by its hash."""
    if _SAFE.fullmatch(name):
        return name
    return "x-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def tokens_in(*urls: str | None) -> list[str]:
    """Return the tokens in the addresses that a session has here: whoever has one can use the session."""
    return [part for url in urls if url for part in url.split("/") if len(part) >= _SHORTEST_TOKEN]
