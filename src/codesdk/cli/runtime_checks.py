"""A runtime → findings about its program, its login, its isolation and its way to a model.

What `codesdk runtimes doctor` shows. No model is asked.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from codesdk.contract.access import AuthStatus
from codesdk.contract.actions import LOCAL
from codesdk.contract.capabilities import Isolation
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import CodeSDKError, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.gateway import access_with, providers_from
from codesdk.local import RUNTIMES
from codesdk.runtimes import create_runtime, entries, find_program, has_namespaces, login_folder

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
    login = [await _login(entry, data_dir)] if program.state == "ok" else []
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
            models=access_with(providers_from()),
        )
        try:
            return await create_runtime(runtime).auth_status(env)
        except CodeSDKError as error:
            return AuthStatus(ok=False, logged_in=False, auth_model="unknown", problem=error.message)


def alias_of(runtime: str) -> str | None:
    """Return the short name of a runtime, or None: only the daemon may know the runtime."""
    entry = entries().get(runtime)
    return entry.alias if entry else None


async def _program(entry: RuntimeEntry) -> Finding:
    try:
        program = await find_program(entry)
    except TaskFailure as error:
        # The advice in the message is replaced by our own command, which picks the tested version.
        problem = error.message.partition(" Install it with: ")[0]
        to_do = f"codesdk runtimes install {entry.alias or entry.name}"
        return Finding(check="program", state="failed", found=problem, to_do=to_do)
    found = f"{program.path}, version {program.version}, the tested one"
    return Finding(check="program", state="ok", found=found)


async def _login(entry: RuntimeEntry, data_dir: str) -> Finding:
    """Find out who would pay for the model: a key that the gateway adds, or a login of the program's own."""
    status = await ask_status(entry.name, data_dir)
    if status.ok:
        return Finding(check="login", state="ok", found=status.account_label or "nobody has to log in")
    return Finding(check="login", state="failed", found=status.problem or "not ready", to_do=status.to_do)


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
