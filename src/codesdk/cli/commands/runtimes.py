"""`codesdk runtimes`: the runtimes of this version → whether each is ready here, and what to do if it is not."""

import sys
import tempfile
from typing import Any

import click

from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.out import write_json, write_text
from codesdk.cli.safe import printable
from codesdk.contract.capabilities import AuthStatus, Isolation
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.registry import ALIASES, create_runtime, resolve, runtime_names


@click.command()
@click.argument("names", nargs=-1)
@json_option("Print one runtime a line as JSON, with its capabilities.")
def runtimes(names: tuple[str, ...], as_json: bool) -> int:
    """List the runtimes, or look at some by NAME: is the program there, is it the tested version, is it logged in.

    No model is asked. Exits 1 if one that was named is not ready.
    """
    return run_async(_look_at([resolve(name) for name in names] or runtime_names(), bool(names), as_json))


async def _look_at(names: list[str], named: bool, as_json: bool) -> int:
    ready = True
    for name in names:
        runtime = create_runtime(name)
        status = await _status(name)
        ready = ready and status.ok
        alias = next((short for short, full in ALIASES.items() if full == name), None)
        if as_json:
            report: dict[str, Any] = {"name": name, "alias": alias, "status": status}
            write_json(report | {"capabilities": runtime.capabilities()})
        else:
            shown = f"{name} ({alias})" if alias else name
            write_text(sys.stdout, f"{'✓' if status.ok else '✗'} {shown:28} {printable(_words(status))}\n")
    return FAILED if named and not ready else OK


async def _status(name: str) -> AuthStatus:
    """Ask a runtime, away from any session."""
    with tempfile.TemporaryDirectory(prefix="codesdk-") as folder:
        env = RuntimeEnv(
            cwd=folder,
            env={},
            credential_namespace="local",
            isolation=Isolation(level="ephemeral", mode="subprocess"),
            state_dir=folder,
        )
        try:
            return await create_runtime(name).auth_status(env)
        except CodeSDKError as error:
            return AuthStatus(
                ok=False, logged_in=False, auth_model="unknown", details={"problem": error.message}
            )


def _words(status: AuthStatus) -> str:
    details = status.details or {}
    problem = details.get("problem") or (None if status.ok else details.get("note"))
    if problem:
        return f"not logged in. {problem}" if "problem" not in details else str(problem)
    known = [f"{name} {value}" for name, value in details.items() if name in ("version", "mode", "source")]
    return " · ".join([*known, status.account_label or ""]).strip(" ·") or (
        "ready" if status.ok else "not ready"
    )
