"""A runtime → findings: its program, its login, how its processes are kept apart, the way to its model. For `runtimes doctor`."""

import asyncio
import shlex
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from codesdk.contract.actions import LOCAL
from codesdk.contract.capabilities import AuthStatus, Isolation
from codesdk.contract.errors import CodeSDKError, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.gateway import KEY_NAMES, Wire, providers_from
from codesdk.local import RUNTIMES
from codesdk.runtimes import ALIASES, PROGRAMS, create_runtime, find

_ANSWER_S = 10.0
_WIRES: dict[str, Wire] = {"claude-agent-sdk": "anthropic", "codex-sdk": "responses"}
"""How each runtime asks its model, which says whose key the gateway needs."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at. A note is worth knowing and keeps nothing from working."""

    check: Literal["program", "login", "isolation", "gateway"]
    state: Literal["ok", "note", "failed"]
    found: str
    to_do: str | None = None


async def look_at(runtime: str, data_dir: str) -> list[Finding]:
    """Return what is found out about a runtime, without a model call."""
    if runtime not in PROGRAMS:
        return [Finding(check="program", state="ok", found="built in")]
    program = await _program(runtime)
    login = [await _login(runtime, data_dir)] if program.state == "ok" else []
    return [program, *login, await _isolation(), await _gateway()]


async def ask_status(runtime: str, data_dir: str | None = None) -> AuthStatus:
    """Ask a runtime, away from any session: about the login in a data directory, if there is one."""
    kept = None if data_dir is None else _kept_in(data_dir)
    lasting = kept is not None and _login_folder(kept, runtime).is_dir()
    with tempfile.TemporaryDirectory(prefix="codesdk-") as folder:
        env = RuntimeEnv(
            cwd=folder,
            env={},
            credential_namespace=LOCAL,
            isolation=Isolation(level="namespaced" if lasting else "ephemeral", mode="subprocess"),
            state_dir=str(kept) if lasting else folder,
        )
        try:
            return await create_runtime(runtime).auth_status(env)
        except CodeSDKError as error:
            return AuthStatus(
                ok=False, logged_in=False, auth_model="unknown", details={"problem": error.message}
            )


def alias_of(runtime: str) -> str | None:
    """Return the short name of a runtime."""
    return next((short for short, full in ALIASES.items() if full == runtime), None)


async def _program(runtime: str) -> Finding:
    try:
        program = await find(runtime)
    except TaskFailure as error:
        problem = error.message.partition(" Install it with: ")[0]
        to_do = f"codesdk runtimes install {alias_of(runtime) or runtime}"
        return Finding(check="program", state="failed", found=problem, to_do=to_do)
    found = f"{program.path}, version {program.version}, the one that was tested"
    return Finding(check="program", state="ok", found=found)


async def _login(runtime: str, data_dir: str) -> Finding:
    """A login of the program's own, or a key that the gateway puts in: one of them is enough."""
    status = await ask_status(runtime, data_dir)
    name = KEY_NAMES[_WIRES[runtime]]
    problem = (status.details or {}).get("problem")
    if problem:
        return Finding(check="login", state="failed", found=str(problem))
    if providers_from()[_WIRES[runtime]].key:
        return Finding(check="login", state="ok", found=f"{name} is set; the gateway puts it in")
    if status.logged_in and status.auth_model != "api_key":
        return Finding(check="login", state="ok", found=f"logged in: {status.account_label}")
    to_do = f"set {name} where CodeSDK runs"
    how = PROGRAMS[runtime].login
    if how is not None:
        folder, program = _login_folder(_kept_in(data_dir), runtime), (await find(runtime)).path
        to_do += f", or log in: {how.format(folder=shlex.quote(str(folder)), program=shlex.quote(program))}"
    return Finding(check="login", state="failed", found=f"not logged in, and {name} is not set", to_do=to_do)


async def _isolation() -> Finding:
    from codesdk.runtimes import has_namespaces

    if await has_namespaces():
        found = "a process namespace of its own: nothing that it starts outlives it"
        return Finding(check="isolation", state="ok", found=found)
    return Finding(
        check="isolation",
        state="note",
        found="no process namespaces here: process groups, and what a killed CodeSDK left is ended at the next start",
        to_do="install bubblewrap, and allow it to make namespaces",
    )


async def _gateway() -> Finding:
    """Start the gateway's server for a moment and ask it something, as a program would."""
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
        found=f"programs on this machine cannot reach a server of ours on 127.0.0.1{problem}",
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


def _kept_in(data_dir: str) -> Path:
    return Path(data_dir).absolute() / RUNTIMES


def _login_folder(kept: Path, runtime: str) -> Path:
    return kept / f"ns-{LOCAL}" / runtime / "login"
