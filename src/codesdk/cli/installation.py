"""`codesdk runtimes install` and `uninstall`: names → the commands, shown and run → programs that are there, or gone.

The program of a runtime that comes with a Python package goes into our own environment; all others are pinned by locks
and have folders to themselves.
"""

import importlib
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from codesdk.cli.exits import BAD_INPUT, FAILED, OK, report_failure
from codesdk.cli.loop import run_async
from codesdk.cli.view.out import write_text
from codesdk.cli.view.safe import printable
from codesdk.contract.entry import ProgramEntry, PythonPackage, RuntimeEntry
from codesdk.contract.errors import CodeSDKError, InvalidRequest, TaskFailure
from codesdk.runtimes import (
    PROGRAMS,
    Job,
    Pinned,
    entries,
    entry_of,
    find_program,
    install_command,
    installed_program,
    plan_jobs,
    program_folder,
    remove_program,
    run_job,
)

_MB = 1_000_000


def installable() -> list[str]:
    """Return the names of all programs that can be installed, a runtime's name where the program has none of its own."""
    bundled = [
        entry.alias or entry.name
        for entry in entries().values()
        if entry.program is not None and isinstance(entry.program.source, PythonPackage)
    ]
    return sorted([*bundled, *PROGRAMS])


def run_install(names: Sequence[str], *, yes: bool, dry_run: bool) -> int:
    """Install programs one after the other, also after one that did not work.

    The exit code is 1 if a command failed; otherwise 2 if one cannot be installed here at all.
    """
    outcomes = {_try_install(name, yes=yes, dry_run=dry_run) for name in names}
    return next((code for code in (FAILED, BAD_INPUT) if code in outcomes), OK)


def run_uninstall(name: str, *, yes: bool) -> int:
    """Remove a program that CodeSDK installed in a folder of its own."""
    entry = None if name in PROGRAMS else entry_of(name)
    program, source = _pinned(name, entry)
    if source is None:
        raise InvalidRequest(
            f"The program of {name} is a package of this Python, {program.source.name}: use uv or pip to remove it."
        )
    folder = program_folder(program, source).parent
    if not folder.is_dir():
        _say(f"{source.lock} is not installed.")
        return OK
    _confirm(f"Remove {printable(str(folder))}?", yes)
    for gone in remove_program(source, _say):
        _say(f"{printable(str(gone))} is removed.")
    return OK


def _try_install(name: str, *, yes: bool, dry_run: bool) -> int:
    try:
        return _install(name, yes=yes, dry_run=dry_run)
    except CodeSDKError as error:
        return report_failure(error, as_json=False)


def _install(name: str, *, yes: bool, dry_run: bool) -> int:
    entry = None if name in PROGRAMS else entry_of(name)
    program, source = _pinned(name, entry)
    if source is None:
        assert entry is not None, "what is not in the table is a runtime's"
        return _install_bundled(entry, yes=yes, dry_run=dry_run)
    there = installed_program(program, source)
    if there is not None and not dry_run:
        _say(f"{source.lock} {program.version} is installed already: {printable(str(there))}")
        return OK
    jobs = plan_jobs(program, source)
    for job in jobs:
        _show(job)
    if dry_run:
        return OK
    _confirm("Run that?" if len(jobs) > 1 else "Run it?", yes)
    began_s = time.monotonic()
    for job in jobs:
        _say(f"Installing {job.what} …")
        run_job(job, _say)
    size = _size(jobs[-1].folder) // _MB
    took_s = time.monotonic() - began_s
    _say(f"{jobs[-1].what} is installed: {printable(str(jobs[-1].folder))} ({size} MB, {took_s:.0f} s)")
    return OK


def _pinned(name: str, entry: RuntimeEntry | None) -> tuple[ProgramEntry, Pinned | None]:
    """Return the program of a name, and its source if that is one of the pinned ones."""
    program = PROGRAMS[name] if entry is None else entry.program
    if program is None:
        raise InvalidRequest(f"The runtime {name} comes with CodeSDK: there is nothing to install.")
    return program, None if isinstance(program.source, PythonPackage) else program.source


def _install_bundled(entry: RuntimeEntry, *, yes: bool, dry_run: bool) -> int:
    command = install_command(entry)
    there = run_async(_version(entry))
    if there is not None and not dry_run:
        _say(f"{there} is installed already.")
        return OK
    _say(printable(shlex.join(command)))
    if dry_run:
        return OK
    _confirm("Run it?", yes)
    try:
        # No stdin: an installer that asks something would wait for an answer that nobody sees is wanted.
        code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise InvalidRequest(
            f"{command[0]} could not be started ({error.strerror}). Is it installed?"
        ) from None
    importlib.invalidate_caches()  # the installer added packages to this running Python
    there = run_async(_version(entry)) if code == 0 else None
    if there is None:
        why = (
            f"the command ended with code {code}"
            if code
            else "the command succeeded, but the program is still not there"
        )
        write_text(sys.stderr, f"{entry.name} was not installed: {why}.\n")
        return FAILED
    _say(f"{there} is installed.")
    return OK


async def _version(entry: RuntimeEntry) -> str | None:
    try:
        program = await find_program(entry)
    except TaskFailure:
        return None
    return f"{entry.name}: {printable(program.path)}, version {program.version},"


def _show(job: Job) -> None:
    for command in job.commands:
        _say(printable(shlex.join(command)))


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest("There is no terminal to ask at. Use --yes to run this command.")
    click.confirm(question, abort=True)


def _say(line: str) -> None:
    write_text(sys.stdout, f"{line}\n")


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
