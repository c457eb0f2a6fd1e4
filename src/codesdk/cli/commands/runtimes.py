"""`codesdk runtimes`: list the runtimes, find out what one lacks on this machine, and install its program."""

import importlib
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.runtime_checks import Finding, alias_of, ask_ready, look_at
from codesdk.cli.target.place import connected, served
from codesdk.cli.view.out import write_json, write_text
from codesdk.cli.view.safe import printable
from codesdk.contract.api import RuntimeAuth
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.runtimes import (
    create_runtime,
    entry_of,
    find_program,
    install_command,
    resolve,
    runtime_names,
)

_MARKS = {"ok": "✓", "note": "·", "failed": "✗"}


class _ListFirst(click.Group):
    """A group whose default subcommand is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListFirst)
def runtimes() -> None:
    """List the runtimes, find out what keeps one from working, install its program or certify it.

    Without a subcommand, it is `list`.
    """


@runtimes.command("list")
@click.argument("names", nargs=-1)
@json_option("Print one runtime per line as JSON, with its capabilities.")
@click.pass_obj
def list_runtimes(setup: Setup, names: tuple[str, ...], as_json: bool) -> int:
    """List the runtimes, or some by NAME: could a task begin? Is the program there, and is there a key or a login?

    What a task would find out where it runs: in the daemon, if there is one. No model is asked. Exits 1 if one that
    was named is not ready.
    """
    return run_async(_list(setup, [resolve(name) for name in names], as_json))


@runtimes.command()
@click.argument("names", nargs=-1)
@json_option("Print one runtime per line as JSON, with its findings.")
@click.pass_obj
def doctor(setup: Setup, names: tuple[str, ...], as_json: bool) -> int:
    """Check what the runtimes, or those given by NAME, need, and say what to do about what is missing.

    Checks program and version, login or key, isolation of its processes, and access to the model gateway.
    No model is asked. Exits 1 if a check fails.
    """
    return run_async(_doctor(setup, [resolve(name) for name in names] or runtime_names(), as_json))


@runtimes.command()
@click.argument("name")
@click.option(
    "--against",
    multiple=True,
    metavar="SESSION",
    help="Also play this recorded session on it, and show what changed. Repeatable.",
)
@json_option("Print one row per line as JSON, then the verdict.")
@click.pass_obj
def certify(setup: Setup, name: str, against: tuple[str, ...], as_json: bool) -> int:
    """Certify the program of the runtime NAME, if it is another version than the tested one.

    Runs the conformance matrix on the program that is installed, with a scripted model and no network, and
    stores a certificate for the user who runs this command. It is void when the program's files, CodeSDK
    or the adapter change. Exits 1 if a row fails, if it was not shown that CodeSDK decides about tools, or if the
    program makes other calls than in a recorded session.
    """
    from codesdk.cli.certification import run_certify

    return run_certify(setup, entry_of(name), against, as_json)


@runtimes.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the command, and run nothing.")
def install(name: str, yes: bool, dry_run: bool) -> int:
    """Install the program of the runtime NAME, in the tested version, for the Python that runs this command.

    The command is shown first. Exits 1 if it fails, or if the program is not found afterwards.
    """
    entry = entry_of(name)
    command = install_command(entry)
    there = run_async(_version(entry))
    if there is not None and not dry_run:
        write_text(sys.stdout, f"{there} is installed already.\n")
        return OK
    write_text(sys.stdout, f"{printable(shlex.join(command))}\n")
    if dry_run:
        return OK
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidRequest("There is no terminal to ask at. Use --yes to run this command.")
        click.confirm("Run it?", abort=True)
    return _install(entry, command)


def _install(entry: RuntimeEntry, command: list[str]) -> int:
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
    write_text(sys.stdout, f"{there} is installed.\n")
    return OK


async def _version(entry: RuntimeEntry) -> str | None:
    try:
        program = await find_program(entry)
    except TaskFailure:
        return None
    return f"{entry.name}: {printable(program.path)}, version {program.version},"


async def _list(setup: Setup, chosen: list[str], as_json: bool) -> int:
    ready = True
    async for found, capabilities in _readiness(setup, chosen):
        ready = ready and found.ready
        if as_json:
            report: dict[str, Any] = {"name": found.name, "alias": alias_of(found.name), "ready": found.ready}
            write_json(
                report | {"available": found.available, "auth": found.auth, "capabilities": capabilities}
            )
        else:
            mark = "✓" if found.ready else "✗"
            write_text(sys.stdout, f"{mark} {_shown(found.name):28} {printable(_words(found))}\n")
    return OK if ready or not chosen else FAILED


async def _readiness(setup: Setup, chosen: list[str]) -> AsyncGenerator[tuple[RuntimeAuth, Capabilities]]:
    """Yield the chosen runtimes, or all, as whoever would run their sessions has them."""
    if not served(setup):
        for name in chosen or runtime_names():
            yield await ask_ready(name, setup), create_runtime(name).capabilities()
        return
    async with connected(setup) as client:
        known = {info.name: info for info in await client.runtimes()}
        for name in chosen or known:
            yield await client.runtime_auth(name), known[name].capabilities


async def _doctor(setup: Setup, names: list[str], as_json: bool) -> int:
    all_well = True
    for name in names:
        findings = await look_at(name, setup)
        well = all(finding.state != "failed" for finding in findings)
        all_well = all_well and well
        if as_json:
            write_json(
                {"name": name, "alias": alias_of(name), "ok": well, "findings": msgspec.to_builtins(findings)}
            )
        else:
            write_text(sys.stdout, f"{'✓' if well else '✗'} {_shown(name)}\n{_lines(findings)}")
    return OK if all_well else FAILED


def _lines(findings: list[Finding]) -> str:
    said = ""
    for finding in findings:
        said += f"  {_MARKS[finding.state]} {finding.check:10} {printable(finding.found)}\n"
        if finding.to_do is not None:
            said += f"    {'':10} → {printable(finding.to_do)}\n"
    return said


def _shown(name: str) -> str:
    alias = alias_of(name)
    return f"{name} ({alias})" if alias else name


def _words(found: RuntimeAuth) -> str:
    """Return what to show of a runtime: what it would use, or everything that is missing."""
    program = found.available
    version = f"{program.version} {program.state} · " if program.ok and program.version else ""
    if found.ready:
        return f"{version}{found.auth.account_label or 'ready'}"
    missing = [(program.problem, program.to_do), (found.auth.problem, found.auth.to_do)]
    words = " ".join(word for pair in missing if pair[0] for word in pair if word)
    return f"{version}{words or 'not ready'}"
