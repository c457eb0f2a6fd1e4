"""The machine and the installation → health, capabilities, versions, MCP transports, files of runtimes.

No runtime's program is started.
"""

import asyncio
import hashlib
import os
import platform
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.entry import ProgramEntry, PythonPackage, RuntimeEntry
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import CONTRACT_VERSION, SCHEMA_VERSION
from codesdk.contract.ports import Policy
from codesdk.contract.process import ProcessFacts
from codesdk.local import DATABASE, RUNTIMES as STATE
from codesdk.redaction import Redactor
from codesdk.runtimes import create_runtime, entries, installed_program, lock_hash, version_of
from codesdk.sandbox import KINDS, look_at
from codesdk.tools import ExecOptions

_MAX_FILES = 500
_MAX_HASHED = 1024 * 1024  # a file is redacted before it is hashed, so it is read whole
# A file with one of these words in its name may hold a login.
_KEYS = ("auth", "credential", "secret", "token", "key", ".env")
_EXTRAS = ("opentelemetry-sdk",)


def versions() -> dict[str, Any]:
    """Return the versions of CodeSDK, its packages, and the runtimes' adapters and programs."""
    return {
        "codesdk": version("codesdk"),
        "contract_version": CONTRACT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": _packages(),
        "runtimes": {name: _adapter(entry) for name, entry in entries().items()},
    }


def capabilities() -> dict[str, Capabilities]:
    """Return what each runtime of this version can do."""
    return {name: create_runtime(name).capabilities() for name in entries()}


def mcp_transports(recorded: Mapping[str, Mapping[str, Any]], servers: Sequence[str]) -> dict[str, Any]:
    """Return which MCP transports each runtime supports, which one the session's log recorded, and the session's
    own MCP `servers`. A runtime that the session did not use has none recorded."""
    unused = {"chosen": None, "seq": None}
    return {
        "runtimes": {
            name: {
                "support": known.mcp_support,
                "supported": known.mcp_transports,
                **recorded.get(name, unused),
            }
            for name, known in capabilities().items()
        },
        "session_servers": list(servers),
    }


async def process_facts(policy: Policy, launch: Mapping[str, Any]) -> ProcessFacts:
    """Return what this process knows of itself: its policy, what it was started with, its own sandbox."""
    run = launch.get("commands")
    sandbox = await look_at(run.sandbox, run.sandbox_options) if isinstance(run, ExecOptions) else None
    return ProcessFacts(
        policy=policy_rules(policy),
        launch=msgspec.to_builtins(launch, order="deterministic", enc_hook=str),
        sandbox=None if sandbox is None else msgspec.to_builtins(sandbox, order="deterministic"),
    )


async def health(
    data_dir: Path | None, *, running: bool, facts: ProcessFacts | None = None
) -> dict[str, Any]:
    """Look at the machine: the data directory, and what the sandboxes enforce.

    Of the sandbox that the process uses, its own word counts: it knows the options. Whoever asks a daemon need not
    know where it keeps its data.
    """
    process, used = (None, None) if facts is None else (facts.health, facts.sandbox)
    found: dict[str, Any] = {} if used is None else {used["backend"]: used}
    for kind in ("bubblewrap", "host"):
        if kind not in found:
            found[kind] = msgspec.to_builtins(await look_at(kind), order="deterministic")
    counting = [used] if used is not None else [each for each in found.values() if each["filesystem"]]
    directory = None if data_dir is None else await asyncio.to_thread(_directory, data_dir)
    usable = directory is None or directory["readable"]
    if directory is not None and process is not None:
        del directory["path"]
    return {
        "ok": usable
        and any(each["available"] for each in counting)
        and (process is None or process.get("ready") is True),
        "process": process,
        "data_dir": directory,
        "writer_running": running,
        "cpus": os.cpu_count(),
        "load": list(os.getloadavg()),
        "sandbox": None if used is None else used["backend"],
        "sandboxes": [found[kind] for kind in KINDS if kind in found],
    }


def policy_rules(policy: Policy) -> dict[str, Any]:
    """Return the rules of the policy in force, and their hash. None of both where the policy has no rules."""
    kind, given = type(policy).__name__, getattr(policy, "rules", None)
    if given is None:
        return {"kind": kind, "rules": None, "rules_hash": None}
    rules = msgspec.to_builtins(given)
    return {"kind": kind, "rules": rules, "rules_hash": hash_json(rules)}


def runtime_files(data_dir: Path | None, session_id: str, redactor: Redactor) -> list[dict[str, Any]]:
    """List the files of a session's runtimes by path and hash; no hash if one may hold a login. Blocking."""
    if data_dir is None:
        return []
    root = data_dir / STATE
    found: list[dict[str, Any]] = []
    for path in sorted(root.glob(f"*/*/{session_id}/**/*")):
        if len(found) == _MAX_FILES:
            break
        if path.is_symlink() or not path.is_file():  # a link may lead out of the folder
            continue
        entry: dict[str, Any] = {"path": str(path.relative_to(root)), "size": path.stat().st_size}
        if any(word in path.name.lower() for word in _KEYS):
            entry["not_hashed"] = "it may hold a login"
        elif entry["size"] > _MAX_HASHED:
            entry["not_hashed"] = "it is large"
        else:
            entry["sha256"] = hashlib.sha256(redactor.data(path.read_bytes())).hexdigest()
        found.append(entry)
    return found


def _packages() -> dict[str, str | None]:
    names = [wanted.split(";")[0] for wanted in requires("codesdk") or [] if "extra ==" not in wanted]
    plain = {name.split(">")[0].split("=")[0].split("[")[0].strip() for name in names}
    programs = {
        entry.program.source.name
        for entry in entries().values()
        if entry.program is not None and isinstance(entry.program.source, PythonPackage)
    }
    return {name: _installed(name) for name in sorted({*plain, *programs, *_EXTRAS})}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _adapter(entry: RuntimeEntry) -> dict[str, Any]:
    program: dict[str, Any] | None = None
    if entry.program is not None:
        program = {
            "name": entry.program.command,
            "tested_version": entry.program.version,
            **_package(entry.program),
            "on_search_path": shutil.which(entry.program.command),
        }
    return {"adapter": entry.adapter, "adapter_version": version("codesdk"), "program": program}


def _package(program: ProgramEntry) -> dict[str, Any]:
    """Return which package brings a program, and which version of it is installed where CodeSDK installs it."""
    source = program.source
    if isinstance(source, PythonPackage):
        return {"package": source.name, "package_version": _installed(source.name)}
    try:
        found = installed_program(program, source)
    except InvalidRequest:  # the folder that the environment names cannot be one
        found = None
    return {
        "package": source.name,
        "package_version": None if found is None else version_of(found, source),
        "lock": lock_hash(source.lock),
    }


def _directory(path: Path) -> dict[str, Any]:
    database = path / DATABASE
    disk = shutil.disk_usage(path) if path.is_dir() else None
    return {
        "path": str(path.absolute()),
        "readable": os.access(database, os.R_OK),
        "writable": os.access(path, os.W_OK),
        "database_bytes": sum(found.stat().st_size for found in path.glob(f"{DATABASE}*") if found.is_file()),
        "disk_free_bytes": disk.free if disk else None,
    }
