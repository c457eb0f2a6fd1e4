"""Nothing that this process starts outlives it, whenever it is killed; and what a guard was released from does."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.counts import COUNTS

from codesdk.contract.workspace import Workspace
from codesdk.processes import Guard, guard, own_guard, start_child

VICTIM = """
import asyncio, signal, sys
from codesdk.channel.limits import ArbiterLimits
from codesdk.channel.process import Descriptor, ProcessRunner
from codesdk.channel.runner import Launch
from codesdk.contract.workspace import Workspace
from codesdk.processes import child, start_child
from codesdk.sandbox.backend import Command
from codesdk.sandbox.bubblewrap import sandbox
from codesdk.sandbox.host import HostSandbox

way, bwrap, workspace, *argv = sys.argv[1:]
place = Workspace(workspace)

async def no():
    return False

async def main():
    await child.has_namespaces()
    boxes = {"sandbox": sandbox.BubblewrapSandbox(), "host": HostSandbox()}
    if way in boxes:
        await boxes[way].capabilities()
    if bwrap:
        child._tried[bwrap] = True
        child._own_tool = lambda name: bwrap
        sandbox.find_program = lambda: bwrap
    if way == "group":
        child.has_namespaces = no
    print("ready", flush=True)
    if way in boxes:
        command = Command(session_id="", argv=argv, workspace=place)
        await boxes[way].run(command, lambda stream, data: None)
    elif way == "wrapped":
        runner = ProcessRunner(Descriptor(1), Descriptor(2), ArbiterLimits())
        kept = await runner.start_session(Launch(argv=argv, cwd=workspace))
    else:
        kept = await start_child(argv, cwd=place, env={"PATH": "/usr/bin:/bin"})
    await asyncio.Event().wait()

asyncio.run(main())
"""
LATE = """#!/bin/sh
cd "${0%/*}"; touch here
while [ ! -e killed ]; do sleep 0.01; done
exec /usr/bin/bwrap "$@"
"""
WAYS = ["namespace", "group", "sandbox", "host", "wrapped"]
LONGEST_START_S = 0.03


def carrying(word: str) -> list[str]:
    """Return the command lines of living processes that have a word in it, this one's own children included."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if word.encode() in line and b"asyncio" not in line:
                found.append(line.replace(b"\0", b" ").decode()[:200])
    return found


async def gone(word: str) -> None:
    """Wait until no process has a word in its command line."""
    async with asyncio.timeout(60):
        while carrying(word):  # noqa: ASYNC110 - of the system
            await asyncio.sleep(0.01)


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory that commands of another user may write to."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o777)
        yield place


@pytest.fixture
def word() -> str:
    """Something that only the processes of one test have in their command line, and `sleep` takes."""
    return f"1{random.getrandbits(60)}"


async def victim(way: str, workspace: Path, *argv: str, bwrap: str = "") -> asyncio.subprocess.Process:
    """Return a process that is about to start a program."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", VICTIM, way, bwrap, str(workspace), *argv), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
async def test_a_kill_at_any_moment_of_a_start_leaves_nothing_running(workspace: Path, word: str, way: str):
    chance = random.Random(way)
    for _ in range(COUNTS.kills_in_a_start):
        process = await victim(way, workspace, "/bin/sleep", word)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0, LONGEST_START_S)):
                await process.wait()
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        await gone(word)


@pytest.mark.process
@pytest.mark.parametrize("way", ["namespace", "sandbox"])
async def test_a_kill_before_bubblewrap_runs_leaves_nothing_running(workspace: Path, word: str, way: str):
    late, here, killed = (workspace / name for name in ("bwrap", "here", "killed"))
    late.write_text(LATE)
    late.chmod(0o755)
    process = await victim(way, workspace, "/bin/sh", "-c", f"touch ran; sleep {word}", bwrap=str(late))
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(here.exists):  # noqa: ASYNC110 - made by another process
            await asyncio.sleep(0.01)
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    await asyncio.to_thread(killed.touch)
    await gone(word)
    assert not await asyncio.to_thread((workspace / "ran").exists), "it was to wait for its limits"


@pytest.mark.process
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing_running(tmp_path: Path, word: str):
    chance = random.Random(1)
    for _ in range(COUNTS.kills_in_a_start):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0, 0.01)):
                child = await start_child(["/bin/sleep", word], cwd=Workspace(str(tmp_path)), env={})
            await child.stop(0)
        await gone(word)


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


GUARDED = """
import os, signal, subprocess, sys
from codesdk.processes import Guard
guard = Guard()
environment = {**os.environ, **guard.variables}
ran = subprocess.Popen(["sh", "-c", "setsid sleep 1000 & echo $!; exec sleep 1000"], env=environment, stdout=subprocess.PIPE)
print(ran.pid, int(ran.stdout.readline()), flush=True)
if sys.argv[1] == "released":
    guard.release()
    guard.release()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("ending", ["killed", "released"])
async def test_all_that_a_program_started_goes_with_it_unless_its_guard_was_released(
    ending: str, bystander: "subprocess.Popen[bytes]"
):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", GUARDED, ending), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in (await process.stdout.readline()).split()]
    assert await process.wait() == -signal.SIGKILL
    if ending == "killed":
        async with asyncio.timeout(60):
            while any(map(alive, pids)):  # noqa: ASYNC110 - of the system
                await asyncio.sleep(0.01)
    else:
        assert all(map(alive, pids))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert bystander.poll() is None


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_guard_that_was_ended_is_replaced_by_one_with_the_same_mark():
    first = own_guard()
    assert own_guard() is first
    assert first._pid is not None
    os.kill(first._pid, signal.SIGKILL)
    os.waitid(os.P_PID, first._pid, os.WEXITED | os.WNOWAIT)
    second = own_guard()
    assert second is not first
    assert (second.mark, second.is_alive()) == (first.mark, True)


def test_a_process_forked_from_ours_has_a_guard_of_its_own():
    mark, (told, tell) = own_guard().mark, os.pipe()
    pid = os.fork()
    if pid == 0:
        forked = own_guard()
        os.write(tell, forked.mark.encode())
        forked.release()
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(told, 100).decode() != mark
    os.close(told)
    os.close(tell)
    assert own_guard().mark == mark


def test_a_guard_that_cannot_be_started_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guard, "_SHELL", "/nowhere/sh")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        Guard()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
