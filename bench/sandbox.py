"""What a command in the sandbox costs: ours against bubblewrap with the same arguments, and against no sandbox.

They take turns in one run, so that noise meets all; the ratios are what counts.
"""

import os
import subprocess
import time
from pathlib import Path

from bench.measure import median, scratch
from bench.table import Report, at_most
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command, SandboxLimits, Stream
from codesdk.sandbox.bubblewrap.confinement import Confinement, Descriptors, arguments, limited
from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox, find_program
from codesdk.sandbox.bubblewrap.seccomp import compile_filter
from codesdk.sandbox.owner import SANDBOX_USER, User, user_for

_TRUE = ["/usr/bin/true"]
_ADDED_MS = 15.0


async def run(report: Report, quick: bool) -> None:
    rounds = 5 if quick else 60
    program = find_program()
    if program is None:
        report.missing("a command that does nothing", "bubblewrap is not installed")
        return
    with scratch() as place:
        place.chmod(0o755)
        user = user_for(place.stat(), SANDBOX_USER)
        if os.geteuid() == 0:
            os.chown(place, *user)
        sandbox = BubblewrapSandbox()
        command = Command(session_id="bench", argv=_TRUE, workspace=Workspace(str(place)))
        await sandbox.run(command, _ignore)
        report.progress(f"{rounds} rounds of three")
        plain: list[float] = []
        bare: list[float] = []
        ours: list[float] = []
        for _ in range(rounds):
            plain.append(_timed(_TRUE, ()))
            bare.append(_bare(program, place, user))
            started = time.perf_counter()
            await sandbox.run(command, _ignore)
            ours.append((time.perf_counter() - started) * 1000)
    report.line("a command that does nothing, no sandbox", median(plain), "ms")
    report.line("bubblewrap alone", median(bare), "ms", against=("no sandbox", median(plain)))
    report.line(
        "through the sandbox",
        median(ours),
        "ms",
        against=("bubblewrap alone", median(bare)),
        note="with control groups"
        if "memory" in (await sandbox.capabilities()).limits
        else "no control groups here",
    )
    report.line("through the sandbox, added", median(ours) - median(bare), "ms", goal=at_most(_ADDED_MS))


def _bare(program: str, place: Path, user: User) -> float:
    """Time bubblewrap with the arguments that the sandbox gives it, made beforehand."""
    fds = Descriptors()
    try:
        workspace = fds.keep(os.open(place, os.O_PATH))
        limits = SandboxLimits()
        options = arguments(Confinement(user, workspace, True, ".", {}, limits), compile_filter(), fds)
        argv = limited(_TRUE, limits, count_processes=True, bound_memory=True)
        return _timed([program, *options, "--", *argv], fds.held, user)
    finally:
        fds.close()


def _timed(argv: list[str], fds: "list[int] | tuple[()]", user: User | None = None) -> float:
    drop = user is not None and os.geteuid() == 0
    started = time.perf_counter()
    subprocess.run(
        argv,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=fds,
        cwd="/",
        env={},
        user=user.uid if user and drop else None,
        group=user.gid if user and drop else None,
        extra_groups=[] if drop else None,
    )
    return (time.perf_counter() - started) * 1000


def _ignore(stream: Stream, data: bytes) -> None:
    pass
