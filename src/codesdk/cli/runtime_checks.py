"""A runtime → findings about its program, its login, its isolation and its way to a model.

What `codesdk runtimes doctor` shows. No model is asked.
"""

import asyncio
from pathlib import Path
from typing import Literal

import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.target.place import connected, open_sdk, runner, served
from codesdk.cli.target.rules import refuse_rules
from codesdk.cli.target.runtimes import RuntimesHere
from codesdk.contract.access import AuthStatus, Availability
from codesdk.contract.actions import LOCAL
from codesdk.contract.api import RuntimeAuth
from codesdk.contract.capabilities import Capabilities, Isolation
from codesdk.contract.entry import EXTERNAL
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.models import Payer
from codesdk.contract.runtime import Runtime, RuntimeEnv
from codesdk.engine import readiness
from codesdk.gateway import Accounts, providers_from
from codesdk.local import RUNTIMES, KeyFile
from codesdk.processes import has_namespaces
from codesdk.runtimes import create_runtime, entries

_ANSWER_S = 10.0


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check. A note is worth knowing, but keeps nothing from working."""

    check: Literal["program", "login", "isolation", "gateway"]
    state: Literal["ok", "note", "failed"]
    found: str
    to_do: str | None = None


async def look_at(runtime: str, setup: Setup, here: RuntimesHere) -> list[Finding]:
    """Check a runtime where its sessions would run, without a model call."""
    found, _ = await ask_ready(runtime, setup, here)
    entry = entries().get(runtime)
    # The operator's own agents have a program that no entry names, and a wire format.
    if entry is not None and entry.program is None and entry.wire is None:
        return [Finding(check="program", state="ok", found="built in")]
    machine = [await _isolation(), await _gateway()] if setup.url is None else []
    return [_program(found.available), _login(found.auth), *machine]


async def ask_ready(
    runtime: str, setup: Setup, here: RuntimesHere
) -> tuple[RuntimeAuth, Capabilities | None]:
    """Return whether a task could begin, from whoever would run it: a daemon, another process, or this one.

    And what the runtime can do, None if that is not known: an executable of another process, or one that says nothing.
    """
    if served(setup):
        async with connected(setup) as client:
            known = {info.name: info.capabilities for info in await client.runtimes()}
            return await client.runtime_auth(runtime), known.get(runtime)
    if await runner(setup) == "process":
        refuse_rules("process")
        capabilities = None if runtime.startswith(EXTERNAL) else create_runtime(runtime).capabilities()
        async with open_sdk(setup) as sdk:
            return await sdk.runtime_auth(runtime), capabilities
    made = await here.find(runtime)
    found = await readiness(made, env_here(made, setup.data_dir, here))
    try:
        return found, made.capabilities()
    except CodeSDKError:
        return found, None


def env_here(runtime: Runtime, data_dir: str, here: RuntimesHere, namespace: str | None = None) -> RuntimeEnv:
    """Return the environment that this process would give a runtime, outside of any session."""
    directory = Path(data_dir).absolute()
    payer = Payer(principal=LOCAL, operator=True)
    return RuntimeEnv(
        cwd="/",
        env={},
        credential_namespace=namespace or LOCAL,
        isolation=Isolation(level="namespaced", mode="subprocess"),
        state_dir=str(directory.resolve() / RUNTIMES),
        payer=payer,
        models=Accounts(providers_from(), KeyFile(directory)).access(payer),
        login=here.logins.get(runtime.name),
        allow_untested=here.allow_untested,
    )


def alias_of(runtime: str) -> str | None:
    """Return the short name of a runtime, or None: only the daemon may know the runtime."""
    entry = entries().get(runtime)
    return entry.alias if entry else None


def _program(available: Availability) -> Finding:
    if not available.ok:
        found = available.problem or "not available"
        return Finding(check="program", state="failed", found=found, to_do=available.to_do)
    if available.program is None:  # it comes with CodeSDK
        return Finding(check="program", state="ok", found="built in")
    version = f", version {available.version}" if available.version else ""
    found = f"{available.program}{version}"
    match available.state:
        case "certified":
            found += ", certified"
        case "untested":
            found += ", untested, which is allowed here"
        case "tested":
            found += ", the tested one"
        case None:
            found += ", the operator's own"
    return Finding(check="program", state="ok", found=found)


def _login(status: AuthStatus) -> Finding:
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
        to_do="Install bubblewrap, and allow it to make namespaces.",
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
        to_do="Allow connections on the loopback interface.",
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
