"""A command in a session's container, against the plain `exec_run` of the docker library in the same engine.

Needs root and Podman; the engine is the one of the tests, with its image.
"""

import os
import shutil
import time
from pathlib import Path

from bench.measure import median, percentile, timed_ms
from bench.table import Report, ratio_at_most
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command, Sandbox

_TRUE = ["true"]


async def run(report: Report, quick: bool) -> None:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        report.missing("a command in a kept container", "needs root and Podman")
        return
    from tests.sandbox.oci.engine import running_engine

    report.progress("an engine and its image")
    with running_engine() as engine:
        await _measure(report, engine.socket, 3 if quick else 40)


async def _measure(report: Report, socket: str, rounds: int) -> None:
    from tests.sandbox.oci.engine import IMAGE
    from tests.sandbox.stage import open_directory

    from codesdk.sandbox.oci.sandbox import OciSandbox
    from codesdk.sandbox.owner import SANDBOX_USER

    sandbox = OciSandbox(IMAGE, engine=socket)
    try:
        with open_directory() as root:
            workspace = root / "workspace"
            workspace.mkdir()
            os.chown(workspace, *SANDBOX_USER)
            report.progress("a new container for each command")
            cold = [await _cold(sandbox, workspace, number) for number in range(max(3, rounds // 4))]
            report.progress("a kept container, in turns with the docker library")
            warm, plain = await _in_turns(sandbox, workspace, socket, rounds)
    finally:
        await sandbox.close()
    against = ("docker library, exec_run", median(plain))
    report.line("a command in a kept container", median(warm), "ms", against=against, goal=ratio_at_most(1.5))
    report.line("the same, p95", percentile(warm, 0.95), "ms", against=(against[0], percentile(plain, 0.95)))
    report.line("a session's first command", median(cold), "ms", note="with making the container")


async def _cold(sandbox: Sandbox, workspace: Path, number: int) -> float:
    session = f"cold_{number}"
    took = await timed_ms(lambda: _command(sandbox, workspace, session))
    await sandbox.close_session(session)
    return took


async def _in_turns(
    sandbox: Sandbox, workspace: Path, socket: str, rounds: int
) -> tuple[list[float], list[float]]:
    """Time both by turns, so that noise meets both. The plain container has none of our options."""
    import docker
    from tests.sandbox.oci.engine import IMAGE

    client = docker.DockerClient(base_url=f"unix://{socket}")
    # Some machines' engines start nothing without these two.
    limits = [docker.types.Ulimit(name=name, soft=1024, hard=1024) for name in ("nofile", "nproc")]
    container = client.containers.run(
        IMAGE, ["sleep", "3600"], detach=True, ulimits=limits, network_mode="none"
    )
    warm: list[float] = []
    plain: list[float] = []
    try:
        await _command(sandbox, workspace, "warm")
        for _ in range(rounds):
            started = time.perf_counter()
            assert container.exec_run(_TRUE).exit_code == 0
            plain.append((time.perf_counter() - started) * 1000)
            warm.append(await timed_ms(lambda: _command(sandbox, workspace, "warm")))
    finally:
        container.kill()
        container.remove()
        client.close()
    return warm, plain


async def _command(sandbox: Sandbox, workspace: Path, session: str) -> None:
    command = Command(session_id=session, argv=_TRUE, workspace=Workspace(str(workspace)))
    end = await sandbox.run(command, lambda *_: None)
    assert end.exit_code == 0
