"""`codesdk runtimes`: list the runtimes, find out what one lacks on this machine, install, certify or probe its program."""

import sys
from collections.abc import AsyncGenerator
from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import Real, json_option
from codesdk.cli.runtime_checks import Finding, alias_of, ask_ready, look_at
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.table import EXTERNAL
from codesdk.cli.target.place import connected, served
from codesdk.cli.target.rules import refuse_rules
from codesdk.cli.target.runtimes import RuntimesHere
from codesdk.cli.view.out import write_json, write_text
from codesdk.cli.view.safe import printable
from codesdk.contract.api import RuntimeAuth
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes import entry_of, resolve

_MARKS = {"ok": "✓", "note": "·", "failed": "✗"}


class _ListFirst(click.Group):
    """A group whose default subcommand is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListFirst)
def runtimes() -> None:
    """List the runtimes, find out what keeps one from working, install, remove or certify its program.

    Without a subcommand, it is `list`.
    """


@runtimes.command("list")
@click.argument("names", nargs=-1)
@json_option("Print one runtime per line as JSON, with its capabilities.")
@flags([EXTERNAL])
@click.pass_obj
def list_runtimes(setup: Setup, names: tuple[str, ...], as_json: bool, **_: Any) -> int:
    """List the runtimes, or some by NAME: could a task begin? Is the program there, and is there a key or a login?

    What a task would find out where it runs: in the daemon, if there is one. No model is asked. Exits 1 if one that
    was named is not ready.
    """
    return run_async(_list(setup, _here(setup), [resolve(name) for name in names], as_json))


@runtimes.command()
@click.argument("names", nargs=-1)
@json_option("Print one runtime per line as JSON, with its findings.")
@flags([EXTERNAL])
@click.pass_obj
def doctor(setup: Setup, names: tuple[str, ...], as_json: bool, **_: Any) -> int:
    """Check what the runtimes, or those given by NAME, need, and say what to do about what is missing.

    Checks program and version, login or key, isolation of its processes, and access to the model gateway.
    No model is asked. Exits 1 if a check fails.
    """
    here = _here(setup)
    return run_async(_doctor(setup, here, [resolve(name) for name in names] or here.names(), as_json))


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
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All programs that CodeSDK knows how to install.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the commands, and run nothing.")
def install(names: tuple[str, ...], every: bool, yes: bool, dry_run: bool) -> int:
    """Install the program of a runtime by NAME, in the tested version; several names are taken one by one.

    NAME is a runtime's, or that of a program that runtimes can drive. What comes with a Python package is installed for
    the Python that runs this command; all else in a folder of its own, below CODESDK_PROGRAMS or the user's data
    folder, together with a node if it needs a newer one. The commands are shown first. Exits 1 if one fails, or if the
    program is not there afterwards.
    """
    from codesdk.cli.installation import installable, run_install

    if every == bool(names):
        raise InvalidRequest("Name the programs to install, or use --all.")
    return run_install(names or installable(), yes=yes, dry_run=dry_run)


@runtimes.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall(name: str, yes: bool) -> int:
    """Remove the program NAME that `install` put into a folder of its own, in every version that is there.

    Running sessions are not stopped and may fail afterwards: close them first.
    """
    from codesdk.cli.installation import run_uninstall

    return run_uninstall(name, yes=yes)


@runtimes.command()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable that it needs. Repeatable."
)
@click.option("--row", metavar="FILE", help="What is already known: a row, or the output of an earlier run.")
@click.option("--write", "name", metavar="NAME", help="Keep the row, so that the runtime acp:NAME exists.")
@click.option("--check", is_flag=True, help="Then run rows of the conformance matrix on it.")
@click.option(
    "--with-network", is_flag=True, help="Continue even if the agent cannot be kept from the network."
)
@click.option(
    "--timeout",
    type=Real(1, 3600),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="The time for all experiments together.",
)
@json_option("Print one finding per line as JSON, then the row.")
def probe(
    command: tuple[str, ...],
    variables: tuple[str, ...],
    row: str | None,
    name: str | None,
    check: bool,
    with_network: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Find out how to drive an unknown agent of the Agent Client Protocol, and write its row.

    COMMAND starts the agent; write -- before it. It is started several times with a scripted model, dummy keys, a home
    and a folder of its own, in a network that has only loopback; what it leaves is removed. Findings are shown as they
    come, and so is what could not be found out. The row goes to stdout, or to the operator's folder with --write.

    In VALUE and in a row, ${model_url} stands for the address of the model, ${key} for its key, ${model} for its name.
    With --check and a --row that an earlier run printed, only the matrix is played.

    Exits 1 if the command is no agent, if no session could use it, or if a row of the matrix fails.
    """
    from codesdk.cli.probing import Wanted, run_probe

    return run_probe(
        Wanted(
            command=command,
            variables=variables,
            row=row,
            name=name,
            check=check,
            with_network=with_network,
            timeout_s=timeout,
            as_json=as_json,
        )
    )


def _here(setup: Setup) -> RuntimesHere:
    """Return what the operator says of runtimes, if that counts here: a daemon has its own."""
    if not served(setup):
        return RuntimesHere.of_command()
    refuse_rules("daemon")
    return RuntimesHere()


async def _list(setup: Setup, here: RuntimesHere, chosen: list[str], as_json: bool) -> int:
    ready = True
    async for found, capabilities in _readiness(setup, here, chosen):
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


async def _readiness(
    setup: Setup, here: RuntimesHere, chosen: list[str]
) -> AsyncGenerator[tuple[RuntimeAuth, Capabilities | None]]:
    """Yield the chosen runtimes, or all, as whoever would run their sessions has them."""
    if not served(setup):
        for name in chosen or here.names():
            yield await ask_ready(name, setup, here)
        return
    async with connected(setup) as client:
        known = {info.name: info.capabilities for info in await client.runtimes()}
        for name in chosen or known:
            yield await client.runtime_auth(name), known.get(name)


async def _doctor(setup: Setup, here: RuntimesHere, names: list[str], as_json: bool) -> int:
    all_well = True
    for name in names:
        findings = await look_at(name, setup, here)
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
    words = [word for word in (program.version, program.state) if word]
    version = f"{' '.join(words)} · " if program.ok and program.version else ""
    if found.ready:
        return f"{version}{found.auth.account_label or 'ready'}"
    missing = [(program.problem, program.to_do), (found.auth.problem, found.auth.to_do)]
    said = " ".join(word for pair in missing if pair[0] for word in pair if word)
    return f"{version}{said or 'not ready'}"
