"""Which installer of packages there is, uv or pip, and which Python can carry a tool's environment → commands."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from codesdk.contract.entry import PythonTool
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes.program.environment import search_path_outside

_ASK_S = 20.0
_NEWEST = 20
_CHECK = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def find_uv(python: str = sys.executable) -> str | None:
    """Return uv: the one beside a Python, else the one on the search path."""
    beside = str(Path(python).parent)
    return shutil.which("uv", path=beside) or shutil.which("uv", path=search_path_outside())


def install_packages(python: str = sys.executable) -> list[str]:
    """Return the beginning of a command that installs packages. Raise `InvalidRequest` if there is no installer."""
    uv = find_uv(python)
    if uv is not None:
        return [uv, "pip", "install", "--python", python]
    if python != sys.executable or importlib.util.find_spec("pip") is not None:
        return [python, "-m", "pip", "install"]
    raise InvalidRequest(
        f"There is neither uv nor pip for {python}, and one of them is needed."
        f" Run {python} -m ensurepip, or install uv."
    )


def venv_commands(python: str, folder: Path, lock: Path) -> list[list[str]]:
    """Return the commands that make a virtual environment in a folder and fill it as a lock says."""
    own = folder / "venv"
    exactly = ["--require-hashes", "--only-binary", ":all:", "-r", str(lock / "requirements.txt")]
    uv = find_uv()
    if uv is not None:
        return [
            [uv, "venv", "--python", python, str(own)],
            [uv, "pip", "install", "--python", str(own / "bin" / "python"), *exactly],
        ]
    return [
        [python, "-m", "venv", str(own)],
        [str(own / "bin" / "python"), "-m", "pip", "install", *exactly],
    ]


def find_python(tool: PythonTool) -> str:
    """Return a Python that is new enough for a tool: ours, or another one. Blocking. Raise `InvalidRequest` if none is."""
    for python in _candidates(tool.python):
        if tool.python <= (_version(python) or (0, 0)):
            return python
    wanted = ".".join(map(str, tool.python))
    raise InvalidRequest(
        f"{tool.lock} needs Python {wanted} or newer with the venv module, and there is none on the search path."
        f" Install one, for example with: uv python install {wanted}"
    )


def _candidates(oldest: tuple[int, int]) -> Iterator[str]:
    yield sys.executable
    names = [f"{oldest[0]}.{minor}" for minor in range(oldest[1], _NEWEST)]
    # pyenv has them where the search path does not lead, or leads only to a shim that refuses to run.
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for name in names:
        found = shutil.which(f"python{name}", path=search_path_outside())
        yield from [found] if found is not None else []
        yield from map(str, sorted(pyenv.glob(f"{name}.*/bin/python{name}")))
    uv = find_uv()
    if uv is not None:
        yield _output([uv, "python", "find", f">={oldest[0]}.{oldest[1]}"])


def _version(python: str) -> tuple[int, int] | None:
    major, dot, minor = _output([python, "-I", "-c", _CHECK]).partition(".") if python else ("", "", "")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None


def _output(command: list[str]) -> str:
    """Return what a command says, or nothing if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
