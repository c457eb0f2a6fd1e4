"""A pinned program → the jobs that install it; a job → a folder that is complete, or not there at all.

A job fills a folder beside the final one with the commands of npm, uv or pip, checks what they made, and renames it.
Whatever breaks off in between leaves something that nobody looks at and that the next job throws away. Where packages
come from is the business of those programs and of their settings; what comes is checked against the hashes of our lock.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec

from codesdk.contract.entry import NpmPackage, ProgramEntry
from codesdk.contract.errors import Busy, CodeSDKError, InvalidRequest, StorageFailure
from codesdk.runtimes.program.environment import search_path_outside
from codesdk.runtimes.program.pinned import NODE_VERSION
from codesdk.runtimes.program.pinned.folders import (
    LOCKS,
    NODE,
    VARIABLE,
    Pinned,
    lock_files,
    node_folder,
    platform_name,
    program_file,
    program_folder,
    programs_folder,
)
from codesdk.runtimes.program.pinned.node import find_node, node_in, npm_in, own_node
from codesdk.runtimes.program.pinned.pythons import find_python, install_packages, venv_commands
from codesdk.runtimes.program.pinned.versions import version_of

Told = Callable[[str], None]
_NPM_NODE = 18
"""The oldest node whose npm reads our locks."""
_NPM_OPTIONS = (
    # Scripts of packages are other people's programs, run before anybody has looked at them. None of ours needs one.
    "--ignore-scripts",
    # npm only warns about packages that this node cannot run.
    "--engine-strict",
    "--omit=dev",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
)
_PARTIAL = ".partial-"
_WAIT_S = 1800.0
_LOOK_S = 0.2


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One folder to fill, and the commands that fill it."""

    lock: str
    folder: Path
    commands: tuple[tuple[str, ...], ...]
    version: str
    source: Pinned | None = None
    """None: it is our node."""

    @property
    def what(self) -> str:
        """What is installed, for people."""
        return f"{self.lock} {self.version}"

    @property
    def partial(self) -> Path:
        """The folder that the commands fill."""
        return _partial(self.folder)


def plan_jobs(program: ProgramEntry, source: Pinned) -> list[Job]:
    """Return what has to be done to install a program, in order. Blocking. Raise `InvalidRequest` if it cannot be."""
    folder = program_folder(program, source)
    if isinstance(source, NpmPackage):
        npm, before = _npm(program, source)
        commands = [[*npm, "ci", "--prefix", str(_partial(folder)), *_NPM_OPTIONS]]
    else:
        before = []
        commands = venv_commands(find_python(source), _partial(folder), LOCKS / source.lock)
    job = Job(
        lock=source.lock, version=program.version, folder=folder, commands=_frozen(commands), source=source
    )
    return [*before, job]


def run_job(job: Job, told: Told) -> Path:
    """Fill a job's folder, unless somebody else has done so by now, and return it. Blocking, for minutes.

    The commands write to our own output. Raise `CodeSDKError` if it did not work; then the folder is not there.
    """
    try:
        with _alone(job.folder.parent, told) as held:
            if not job.folder.exists():
                _fill(job, held)
        return job.folder
    except OSError as error:
        raise StorageFailure(
            f"{job.what} could not be installed below {programs_folder()}: {error.strerror}."
            f" Make room or change its permissions, or choose another folder with {VARIABLE}."
        ) from error


def remove_program(source: Pinned, told: Told) -> list[Path]:
    """Remove every installed version of a program, and our node if nothing else is left. Return what is gone."""
    root = programs_folder()
    gone = _clear(root / source.lock, told)
    if not any(_complete(place) for place in _folders(root) if place.name != NODE):
        gone += _clear(root / NODE, told)
    return gone


def _npm(program: ProgramEntry, source: NpmPackage) -> tuple[list[str], list[Job]]:
    """Return the npm to use, and what must be installed before it can be."""
    here = platform_name()
    if source.platforms and here not in source.platforms:
        raise InvalidRequest(
            f"{source.lock} {program.version} is pinned for {', '.join(source.platforms)}, and this is {here}."
            f" Install {program.command} yourself, and certify what you have: codesdk runtimes certify."
        )
    path = search_path_outside()
    node, npm = find_node(max(source.node or 0, _NPM_NODE), path), shutil.which("npm", path=path)
    own = own_node()
    if node is not None and npm is not None and (own is None or node != str(own)):
        return [npm], []
    return npm_in(node_folder()), [] if own is not None else [_node_job()]


def _node_job() -> Job:
    folder = node_folder()
    lock = str(LOCKS / NODE / "requirements.txt")
    options = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(_partial(folder)))
    command = [*install_packages(), *options, "-r", lock]
    return Job(lock=NODE, version=NODE_VERSION, folder=folder, commands=_frozen([command]))


def _fill(job: Job, held: int) -> None:
    for left in job.folder.parent.glob(f"{_PARTIAL}*"):
        shutil.rmtree(left)
    job.partial.mkdir()
    try:
        for path in lock_files(job.lock):
            shutil.copyfile(path, job.partial / path.name)
        for command in job.commands:
            _run(job, command, held)
        _check(job)
        # Durable before it has its name: what a crash leaves half written must not be found.
        os.sync()
        job.partial.rename(job.folder)
    except BaseException:
        shutil.rmtree(job.partial, ignore_errors=True)
        raise


def _run(job: Job, command: tuple[str, ...], held: int) -> None:
    try:
        done = subprocess.run(
            command,
            # In the new folder: settings of npm, uv or pip that lie where we are may be somebody else's.
            cwd=job.partial,
            stdin=subprocess.DEVNULL,
            # With the lock: should we be killed, nobody else begins before the command has ended, too.
            pass_fds=(held,),
            check=False,
        )
    except OSError as error:
        raise CodeSDKError(
            f"{job.what} was not installed: {command[0]} could not be started ({error.strerror}). Is it installed?"
        ) from None
    if done.returncode:
        raise CodeSDKError(
            f"{job.what} was not installed: {Path(command[0]).name} ended with code {done.returncode}."
            " What it said is above; nothing was left behind, so try again when that is settled."
        )


def _check(job: Job) -> None:
    """Make sure that the commands made what the table promises."""
    path = node_in(job.partial) if job.source is None else program_file(job.partial, job.source)
    if not path.is_file():
        problem = f"its lock brings no {path.name}"
    elif job.source is not None and (found := version_of(path, job.source)) != job.version:
        problem = f"its lock brings version {found}"
    else:
        return
    raise CodeSDKError(f"{job.what} was not installed: {problem}. Install CodeSDK again.")


@contextlib.contextmanager
def _alone(place: Path, told: Told) -> Generator[int]:
    """Take the lock for installing or removing below a folder. Raise `Busy` if another process never ends."""
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    # On a file beside the folders: the folder itself may be removed by whoever has the lock.
    handle = os.open(place.parent / f".{place.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _WAIT_S
        said = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    told(f"Somebody else installs {place.name} just now. Waiting for them.")
                    said = True
                if time.monotonic() > deadline:
                    raise Busy(
                        f"Another process has been working in {place} for too long. Find out what it is doing, or end it."
                    ) from None
                time.sleep(_LOOK_S)
        place.mkdir(mode=0o755, exist_ok=True)
        yield handle
    finally:
        os.close(handle)


def _clear(place: Path, told: Told) -> list[Path]:
    if not place.is_dir():
        return []
    with _alone(place, told):
        gone = _complete(place)
        for folder in gone:
            # Under its own name it must never be there in part.
            folder.rename(_partial(folder))
        shutil.rmtree(place)
    return gone


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _complete(place: Path) -> list[Path]:
    return [path for path in _folders(place) if not path.name.startswith(".")]


def _partial(folder: Path) -> Path:
    return folder.parent / f"{_PARTIAL}{folder.name}"


def _frozen(commands: list[list[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(command) for command in commands)
