"""A pinned program → the folder that it is installed in, and whether all of it is there.

A folder is named by the version and a hash of the lock, so that another CodeSDK with another lock has another one, and
what is there need not be compared with anything. It gets that name when it is complete, and is never changed then.
"""

import hashlib
import os
import platform
from functools import cache
from pathlib import Path

from codesdk.contract.entry import NpmPackage, ProgramEntry, PythonTool
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes.program.environment import operator_folder
from codesdk.runtimes.program.pinned import NODE_VERSION

VARIABLE = "CODESDK_PROGRAMS"
NODE = "node"
LOCKS = Path(__file__).parent / "locks"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}

Pinned = NpmPackage | PythonTool


def programs_folder() -> Path:
    """Return the folder of all programs that CodeSDK installed: the user's, unless the environment names another."""
    given = os.environ.get(VARIABLE)
    if not given:
        return operator_folder() / "programs"
    if not Path(given).is_absolute():
        # It would depend on where we are, which may be a workspace that somebody else wrote.
        raise InvalidRequest(
            f"{VARIABLE} is {given}, which is not an absolute path. Set it to one, or unset it."
        )
    return Path(given)


def program_folder(program: ProgramEntry, source: Pinned) -> Path:
    """Return where a program is, or would be, installed."""
    return _folder(source.lock, program.version)


def node_folder() -> Path:
    """Return where our own node is, or would be, installed."""
    return _folder(NODE, NODE_VERSION)


def program_file(folder: Path, source: Pinned) -> Path:
    """Return the file of a program in the folder that it was installed in."""
    if isinstance(source, NpmPackage):
        return folder / "node_modules" / source.program
    return folder / "venv" / "bin" / source.program


def installed_program(program: ProgramEntry, source: Pinned) -> Path | None:
    """Return the program's file if CodeSDK has installed it, else None. Blocking, but short."""
    path = program_file(program_folder(program, source), source)
    if not path.is_file():
        return None
    # A virtual environment has only a link to its Python, which may be gone.
    return path if isinstance(source, NpmPackage) or python_of(path).exists() else None


def python_of(script: Path) -> Path:
    """Return the interpreter of the virtual environment that a script belongs to."""
    return script.parent / "python"


def lock_files(lock: str) -> list[Path]:
    """Return the files of a lock."""
    return sorted(path for path in (LOCKS / lock).iterdir() if path.is_file())


@cache
def lock_hash(lock: str) -> str:
    """Return the hash of a lock."""
    digest = hashlib.sha256()
    for path in lock_files(lock):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def platform_name() -> str:
    """Return this platform in node's words."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}-{_MACHINES.get(machine, machine)}"


def _folder(lock: str, version: str) -> Path:
    return programs_folder() / lock / f"{version}-{lock_hash(lock)[:12]}"
