"""As `driver.py`, for the container sandbox: `python -m tests.sandbox.oci.driver SOCKET`, jobs on stdin, reports on stdout."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tests.sandbox.driver import Job, Report, environment, identity
from tests.sandbox.oci.engine import IMAGE
from tests.sandbox.ran import run

from codesdk.sandbox.oci.sandbox import OciSandbox

_ROOT = Path(__file__).parents[3]


def drive(
    jobs: Sequence[Job], socket: str, *, uid: int | None, env: dict[str, str] | None = None
) -> dict[str, Report]:
    """Run jobs in a process of this user, or of another one."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = f"/usr/bin/python{version}"  # ours may lie in somebody's home
    done = subprocess.run(
        [python if Path(python).exists() else sys.executable, "-m", "tests.sandbox.oci.driver", socket],
        input=msgspec.json.encode(list(jobs)),
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=environment() | (env or {}),
        check=True,
        **identity(uid),
    )
    return msgspec.json.decode(done.stdout, type=dict[str, Report])


async def _main(jobs: list[Job], socket: str) -> dict[str, Report]:
    sandbox = OciSandbox(IMAGE, engine=socket)
    reports: dict[str, Report] = {}
    try:
        for job in jobs:
            ran = await run(sandbox, job.command)
            reports[job.name] = Report(list(ran.words), ran.end.exit_code, error=ran.errors or None)
    finally:
        await sandbox.close()
    return reports


if __name__ == "__main__":
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Job])
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_main(given, sys.argv[1]))))
