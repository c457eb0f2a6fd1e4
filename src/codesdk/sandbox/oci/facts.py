"""Concludes what an engine can and cannot do from what it reports about itself.

An engine whose containers would not be a sandbox is refused here, once, before any command.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.sandbox.backend import Command, LimitName, SandboxUnavailable
from codesdk.sandbox.oci.counters import visible
from codesdk.sandbox.oci.engine import Engine, EngineMissing, EngineRefused
from codesdk.sandbox.oci.owner import remove_orphans

_ALWAYS: frozenset[LimitName] = frozenset({"wall", "output", "file_size", "open_files", "scratch"})


class Facts(msgspec.Struct, frozen=True):
    """What an engine reports about itself, as far as it matters here."""

    limits: frozenset[LimitName]
    cpus: int
    podman: bool
    notes: tuple[str, ...] = ()


async def ask(engine: Engine, image: str) -> Facts:
    """Ask the engine about itself. Raise `SandboxUnavailable` if its containers would not be a sandbox."""
    await engine.connect()
    try:
        version, info, *_ = await _all(
            engine.call("version"),
            engine.call("info"),
            engine.call("inspect_image", image),
            remove_orphans(engine),
        )
    except EngineMissing:
        raise SandboxUnavailable(
            f"The image {image} is not in the container engine: fetch or build it, for example with `docker pull {image}`."
        ) from None
    except EngineRefused as error:
        raise SandboxUnavailable(f"The container engine does not say what it can do: {error}") from None
    return _facts(version, info)


async def _all(*calls: Awaitable[Any]) -> list[Any]:
    """Wait for all calls even if one fails, since the engine is closed then; raise the failure afterwards."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _facts(version: Mapping[str, Any], info: Mapping[str, Any]) -> Facts:
    options = " ".join(info.get("SecurityOptions") or [])
    if "seccomp" not in options:
        raise SandboxUnavailable(
            "The container engine has no system call filter (seccomp), so it is not used."
        )
    if info.get("Rootless") or "rootless" in options:
        raise SandboxUnavailable(
            "The container engine is rootless: its containers could not write the workspace as its owner. "
            "Use the bubblewrap sandbox, which needs no root either."
        )
    cgroups: dict[LimitName, bool] = {
        "memory": bool(info.get("MemoryLimit")),
        "processes": bool(info.get("PidsLimit")),
        "cpu": visible(),
    }
    components: list[Mapping[str, Any]] = version.get("Components") or []
    return Facts(
        limits=_ALWAYS.union(name for name, there in cgroups.items() if there),
        cpus=int(info.get("NCPU") or 1),
        podman=any("Podman" in str(item.get("Name")) for item in components),
        notes=tuple(
            f"The container engine does not limit {name} here: turn on its control group."
            for name, there in cgroups.items()
            if not there
        ),
    )


def require_possible(command: Command) -> None:
    """Raise if containers cannot run what other backends could."""
    if command.hosts:
        raise SandboxUnavailable(
            "The container sandbox cannot allow single hosts; run without network, or use the bubblewrap sandbox."
        )
    if command.argv[0].startswith("-"):
        raise InvalidRequest("A command begins with the name of a program, not with an option.")
