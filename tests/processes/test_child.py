"""Supervised children, with a process namespace and without one."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from codesdk.contract.errors import TaskFailure
from codesdk.contract.workspace import Workspace
from codesdk.processes import child as process
from codesdk.processes.child import TAIL_BYTES, Child, start_child
from codesdk.processes.guard import VARIABLE
from codesdk.sandbox import identify

GRANDCHILD = """
import os, subprocess, sys, time
inner = subprocess.Popen(["sleep", "1000"], start_new_session=len(sys.argv) > 1)
print("ready", flush=True)
time.sleep(1000)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000)
"""
POLITE = """
import signal, sys, time
def leave(*_):
    print("bye", file=sys.stderr, flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture(params=["namespace", "group"])
def hosting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "group":

        async def none() -> bool:
            return False

        monkeypatch.setattr(process, "has_namespaces", none)
    return request.param


async def child_of(code: str, *args: str, cwd: Path | str = "/", **options: object) -> Child:
    env = {"MARK": MARK, "PYTHONDONTWRITEBYTECODE": "1"}
    return await start_child([sys.executable, "-c", code, *args], cwd=Workspace(str(cwd)), env=env, **options)  # type: ignore[arg-type]


MARK = f"codesdk-test-{os.getpid()}"


def marked() -> list[int]:
    """Return the living processes that were started with our mark, wherever they hide."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"MARK={MARK}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def name_of(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


async def test_a_child_has_pipes_its_folder_and_only_the_given_environment(tmp_path: Path, hosting: str):
    code = "import os, sys; print(os.getcwd(), sorted(os.environ)); print(sys.stdin.readline())"
    child = await child_of(code, cwd=tmp_path)
    child.stdin.write(b"hello\n")
    told = (await child.stdout.read()).decode().split("\n")
    assert await child.wait() == 0
    await child.stop()
    allowed = {"LC_CTYPE", "MARK", "PWD", "PYTHONDONTWRITEBYTECODE"}
    if hosting == "group":
        allowed.add(VARIABLE)
    assert told[0].startswith(f"{tmp_path} [")
    assert set(eval(told[0].removeprefix(str(tmp_path)))) <= allowed
    assert told[1] == "hello"


async def test_a_child_that_ends_when_asked_ends_in_its_own_way(hosting: str):
    child = await child_of(POLITE)
    await child.stdout.readline()
    await child.stop(grace_s=20)
    assert (child.exit_code, child.stderr_tail()) == (7, "bye")
    assert marked() == []


async def test_a_child_that_does_not_end_when_asked_is_killed(hosting: str):
    child = await child_of(STUBBORN)
    await child.stdout.readline()
    await child.stop(grace_s=0.05)
    assert child.exit_code not in (None, 0)
    assert marked() == []
    await child.stop()


async def test_a_child_that_is_frozen_with_all_around_it_is_killed(hosting: str):
    child = await child_of(POLITE)
    await child.stdout.readline()
    os.killpg(child.pid, signal.SIGSTOP)
    await child.stop(grace_s=0.05)
    assert child.exit_code == -signal.SIGKILL
    await gone()


async def test_a_flood_that_nobody_reads_leaves_no_pipe_open(hosting: str):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the listing itself takes one
    child = await child_of(
        "import sys\nwhile True: sys.stdout.write('x' * 10000); sys.stderr.write('y' * 10000)"
    )
    while not vars(child.stdout)["_paused"]:  # noqa: ASYNC110 - until then its end would be read
        await asyncio.sleep(0)
    await child.stop(grace_s=0)
    await asyncio.sleep(0)  # descriptors are closed on the next turn of the loop
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_stopping_takes_along_what_the_child_started(hosting: str):
    child = await child_of(GRANDCHILD)
    await child.stdout.readline()
    await seen("sleep")
    await child.stop(grace_s=0)
    await gone()


async def test_in_a_namespace_nothing_escapes_by_a_session_of_its_own():
    child = await child_of(GRANDCHILD, "apart")
    await child.stdout.readline()
    await seen("sleep")
    await child.stop(grace_s=0)
    await gone()


async def test_what_a_child_leaves_behind_when_it_ends_itself_is_gone_after_stop(hosting: str):
    code = "import subprocess; subprocess.Popen(['sleep', '1000'], stdout=2); print('ready', flush=True)"
    child = await child_of(code)
    assert await child.stdout.readline() == b"ready\n"
    assert await child.wait() == 0
    await child.stop()
    await gone()


async def seen(name: str, *, alone: bool = False) -> int:
    """Wait until a marked process of a name is there, and no other if it must be alone. Return its id.

    A program that was just started has no environment for a moment.
    """
    async with asyncio.timeout(20):
        while True:
            found = {pid: name_of(pid) for pid in marked()}
            pid = next((pid for pid, known in found.items() if known == name), None)
            if pid is not None and not (alone and len(found) > 1):
                return pid
            await asyncio.sleep(0.01)


async def gone() -> None:
    """Wait until no marked process is left. A killed one may take a moment to disappear."""
    async with asyncio.timeout(20):
        while marked():  # noqa: ASYNC110 - of the system
            await asyncio.sleep(0.01)


async def test_a_child_dies_with_its_parent(hosting: str):
    code = f"""
import asyncio, os, signal
from codesdk.contract.workspace import Workspace
from codesdk.processes import child as process
async def none(): return False
if {hosting == "group"}: process.has_namespaces = none
async def main():
    child = await process.start_child({[sys.executable, "-c", GRANDCHILD]!r}, cwd=Workspace("/"), env={{"MARK": {MARK!r}}})
    await child.stdout.readline()
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await parent.wait() == -signal.SIGKILL
    await gone()


async def test_the_end_of_stderr_is_kept_in_whole_lines_and_without_secrets(hosting: str):
    code = "import sys\nfor n in range(2000): print(f'line {n} key-4711', file=sys.stderr)"
    child = await child_of(code, secrets=["key-4711"])
    await child.wait()
    await child.stop()
    lines = child.stderr_tail().split("\n")
    assert len(lines) < TAIL_BYTES // len("line 0 key-4711")
    first = int(lines[0].split()[1])
    assert lines == [f"line {n} [redacted]" for n in range(first, 2000)]
    assert len(lines) > 100


async def test_a_program_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process.shutil, "which", lambda name, path: None)
    with pytest.raises(TaskFailure, match="No such file") as raised:
        await start_child(["/no/such/program"], cwd=Workspace("/"), env={})
    assert raised.value.code == "RUNTIME_UNAVAILABLE"


async def test_a_bubblewrap_that_may_not_make_namespaces_is_not_used(tmp_path: Path):
    useless = tmp_path / "bwrap"
    write_program(useless, "#!/bin/sh\nexit 1\n")
    assert await process._try_namespace(str(useless)) is False
    assert await process.has_namespaces() is True


async def test_a_program_runs_only_in_the_directory_that_is_meant(hosting: str, tmp_path: Path):
    """Somebody may put another directory in its place after it was looked at and before the program is in it."""
    code = "import os; print(os.getcwd(), sorted(os.environ))"
    argv, env = [sys.executable, "-c", code], {"MARK": MARK}
    meant = identify(Workspace(str(tmp_path)))
    child = await start_child(argv, cwd=meant, env=env)
    try:
        names = ["LC_CTYPE", "MARK"] if hosting == "namespace" else [VARIABLE, "LC_CTYPE", "MARK"]
        assert (await child.stdout.read()).decode() == f"{tmp_path} {names}\n"
    finally:
        await child.stop()
    other = await start_child(argv, cwd=Workspace(str(tmp_path), (1, 2)), env=env)
    try:
        assert (await other.stdout.read(), await other.wait()) == (b"", 126)
        assert other.stderr_tail() == "The workspace was replaced by another directory."
    finally:
        await other.stop()
