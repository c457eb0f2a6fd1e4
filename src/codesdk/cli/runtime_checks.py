"""A runtime → findings about its program, its login, its isolation and its way to a model.

What `codesdk runtimes doctor` shows. No model is asked.
"""

import asyncio
import shlex
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from codesdk.contract.actions import LOCAL
from codesdk.contract.capabilities import AuthStatus, Isolation
from codesdk.contract.entry import ProgramEntry, RuntimeEntry
from codesdk.contract.errors import CodeSDKError, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.gateway import KEY_NAMES, providers_from
from codesdk.local import RUNTIMES
from codesdk.runtimes import (
    Program,
    certify_command,
    create_runtime,
    entries,
    find_program,
    has_namespaces,
    login_folder,
)

_ANSWER_S = 10.0


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check. A note is worth knowing, but keeps nothing from working."""

    check: Literal["program", "login", "isolation", "gateway"]
    state: Literal["ok", "note", "failed"]
    found: str
    to_do: str | None = None


async def look_at(runtime: str, data_dir: str) -> list[Finding]:
    """Check a runtime, without a model call."""
    entry = entries()[runtime]
    if entry.program is None:
        return [Finding(check="program", state="ok", found="built in")]
    program = await _program(entry)
    login = [await _login(entry, entry.program, data_dir)] if program.state == "ok" else []
    return [program, *login, await _isolation(), await _gateway()]


async def ask_status(runtime: str, data_dir: str | None = None) -> AuthStatus:
    """Ask a runtime for its status, outside any session: with the login in a data directory, if any."""
    kept = None if data_dir is None else _kept_in(data_dir)
    lasting = kept is not None and login_folder(kept, LOCAL, entries()[runtime]).is_dir()
    with tempfile.TemporaryDirectory(prefix="codesdk-") as folder:
        env = RuntimeEnv(
            cwd=folder,
            env={},
            credential_namespace=LOCAL,
            isolation=Isolation(level="namespaced" if lasting else "ephemeral", mode="subprocess"),
            state_dir=kept if kept is not None and lasting else folder,
        )
        try:
            return await create_runtime(runtime).auth_status(env)
        except CodeSDKError as error:
            return AuthStatus(
                ok=False, logged_in=False, auth_model="unknown", details={"problem": error.message}
            )


async def installed(runtime: str) -> Program | None:
    """Return the program of a runtime, of whatever version; None if there is none here or it has none."""
    entry = entries().get(runtime)
    if entry is None or entry.program is None:
        return None
    try:
        return await find_program(entry, allow_untested=True)
    except TaskFailure:
        return None


def alias_of(runtime: str) -> str | None:
    """Return the short name of a runtime, or None: only the daemon may know the runtime."""
    entry = entries().get(runtime)
    return entry.alias if entry else None


async def _program(entry: RuntimeEntry) -> Finding:
    try:
        program = await find_program(entry, allow_untested=True)
    except TaskFailure as error:
        # The advice in the message is replaced by our own command, which picks the tested version.
        problem = error.message.partition(" Install it with: ")[0]
        return Finding(check="program", state="failed", found=problem, to_do=_install(entry))
    if program.state == "untested":
        found, to_do = f"untested: {program.doubt}", f"{certify_command(entry)}, or {_install(entry)}"
        return Finding(check="program", state="failed", found=found, to_do=to_do)
    state = "the tested one" if program.state == "tested" else "certified"
    return Finding(check="program", state="ok", found=f"{program.path}, version {program.version}, {state}")


def _install(entry: RuntimeEntry) -> str:
    return f"codesdk runtimes install {entry.alias or entry.name}"


async def _login(entry: RuntimeEntry, program: ProgramEntry, data_dir: str) -> Finding:
    """Look for a login of the program's own, or a key that the gateway adds: either is enough."""
    status = await ask_status(entry.name, data_dir)
    problem = (status.details or {}).get("problem")
    if problem:
        return Finding(check="login", state="failed", found=str(problem))
    if entry.wire is None:  # it reaches its model without the gateway, so no key of ours helps
        state, found = (
            ("ok", f"logged in: {status.account_label}") if status.ok else ("failed", "not logged in")
        )
        return Finding(check="login", state=state, found=found)
    name = KEY_NAMES[entry.wire]
    if providers_from()[entry.wire].key:
        return Finding(check="login", state="ok", found=f"{name} is set; the gateway adds it")
    if status.logged_in and status.auth_model != "api_key":
        return Finding(check="login", state="ok", found=f"logged in: {status.account_label}")
    to_do = f"set {name} where CodeSDK runs"
    if program.login is not None:
        folder, path = login_folder(_kept_in(data_dir), LOCAL, entry), (await find_program(entry)).path
        how = program.login.format(folder=shlex.quote(str(folder)), program=shlex.quote(path))
        to_do += f", or log in: {how}"
    return Finding(check="login", state="failed", found=f"not logged in, and {name} is not set", to_do=to_do)


async def _isolation() -> Finding:
    if await has_namespaces():
        found = "a process namespace of its own: nothing that it starts outlives it"
        return Finding(check="isolation", state="ok", found=found)
    return Finding(
        check="isolation",
        state="note",
        found="no process namespaces here: what a killed CodeSDK leaves running is ended at its next start",
        to_do="install bubblewrap, and allow it to make namespaces",
    )


async def _gateway() -> Finding:
    """Start the gateway for a moment and send it a request, as a program would."""
    from codesdk.gateway import Gateway, ScriptedModel
    from codesdk.script import parse_object

    try:
        async with Gateway() as gateway, asyncio.timeout(_ANSWER_S):
            base = gateway.admit(
                ScriptedModel(parse_object({"turns": [{"steps": [{"text": "-"}]}]}, "doctor"))
            )
            answered = await _get(f"{base}/-")
    except (OSError, TimeoutError) as error:
        answered, problem = False, f" ({error})" if str(error) else ""
    else:
        problem = ""
    if answered:
        return Finding(check="gateway", state="ok", found="answers on loopback")
    return Finding(
        check="gateway",
        state="failed",
        found=f"programs on this machine cannot reach the gateway on 127.0.0.1{problem}",
        to_do="allow connections on the loopback interface",
    )


async def _get(url: str) -> bool:
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write(f"GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        return (await reader.readline()).startswith(b"HTTP/1.1 ")
    finally:
        writer.close()


def _kept_in(data_dir: str) -> str:
    return str(Path(data_dir).absolute() / RUNTIMES)
