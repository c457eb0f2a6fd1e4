"""A process that runs commands in bubblewrap and reports how they went. Started by tests, as root or as somebody else.

Reads one JSON document from stdin: `jobs`, each the fields of a command, and `port`, where everything that an
allowed host would answer is answered instead. Writes one JSON document: the capabilities, and for each job what
it printed and how it ended.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from codesdk.contract.errors import CodeSDKError
from codesdk.sandbox.backend import Command, SandboxCapabilities
from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from codesdk.sandbox.egress import Internet

ORDINARY = 61_234
"""Somebody without rights, other than the user that root's commands run as."""
ADDRESSES = {
    "allowed.example": ["93.184.216.34"],
    "inner.example": ["10.0.0.7"],
    "both.example": ["8.8.8.8", "::1"],
}
_ROOT = Path(__file__).parents[2]


class Report(msgspec.Struct):
    """How a job went: its words on stdout and its end, or the error instead."""

    words: list[str] = []
    exit_code: int | None = None
    limits_hit: list[str] = []
    refused_hosts: list[str] = []
    error: str | None = None


class Reports(msgspec.Struct):
    """All that a driver says."""

    capabilities: SandboxCapabilities
    jobs: dict[str, Report]


class Job(msgspec.Struct):
    """A command to run, by name."""

    name: str
    command: Command


class Orders(msgspec.Struct):
    """What a driver is to do."""

    jobs: list[Job]
    port: int = 0


def internet(port: int) -> Internet:
    """Return an internet of a few names, in which every host is a server on our loopback."""

    async def resolve(host: str, _port: int) -> Sequence[str]:
        try:
            return ADDRESSES[host]
        except KeyError:
            raise OSError("no such host") from None

    return Internet(resolve, lambda _address, _port: asyncio.open_connection("127.0.0.1", port))


def drive(
    jobs: Sequence[Job], *, uid: int | None, port: int = 0, env: dict[str, str] | None = None
) -> Reports:
    """Run jobs in a process of this user, or of another one."""
    done = subprocess.run(
        [any_python(), "-m", "tests.sandbox.driver"],
        input=msgspec.json.encode(Orders(list(jobs), port)),
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=environment() | (env or {}),
        check=True,
        **identity(uid),
    )
    return msgspec.json.decode(done.stdout, type=Reports)


def identity(uid: int | None) -> dict[str, Any]:
    """Return the arguments that make a new process another user's."""
    return {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}


def environment() -> dict[str, str]:
    """Return what a Python that is not ours needs to find our code and libraries."""
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    return {"PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}:{libraries}", "PYTHONDONTWRITEBYTECODE": "1"}


def any_python() -> str:
    """Return a Python of our version that everybody may run: ours may lie in somebody's home."""
    found = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return found if os.access(found, os.X_OK) else sys.executable


async def _main(orders: Orders) -> Reports:
    sandbox = BubblewrapSandbox(internet=internet(orders.port))
    jobs: dict[str, Report] = {}
    for job in orders.jobs:
        said: list[bytes] = []
        try:
            end = await sandbox.run(
                job.command, lambda stream, data, said=said: said.append(data if stream == "stdout" else b"")
            )
        except CodeSDKError as error:
            jobs[job.name] = Report(error=error.message)
            continue
        words = b"".join(said).decode().split()
        jobs[job.name] = Report(words, end.exit_code, list(end.limits_hit), list(end.refused_hosts))
    return Reports(await sandbox.capabilities(), jobs)


if __name__ == "__main__":
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_main(given))))
