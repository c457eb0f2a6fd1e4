"""What a killed CodeSDK left behind is ended at the next start, and nothing else is."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from codesdk import CodeSDK
from codesdk.contract.workspace import Workspace
from codesdk.processes import child as process, notes, start_child, sweep
from codesdk.processes.notes import PROCESSES, Note, write_note

CHILD = """
import subprocess, sys, time
inner = subprocess.Popen(["sleep", "1000"])
print(inner.pid, flush=True)
time.sleep(1000)
"""
PARENT = """
import asyncio, os, shutil, signal, sys
from codesdk import CodeSDK
from codesdk.contract.workspace import Workspace
from codesdk.processes import child as process

async def none():
    return False

process.has_namespaces = none
if sys.argv[1] == "the child lives on":
    process.shutil.which = lambda name, path: None

async def main():
    async with CodeSDK.open(sys.argv[2]) as sdk:
        state_dir = sdk.engine.ports.state_dir
        env = {"HOME": sys.argv[3]}
        child = await process.start_child(
            [sys.executable, "-c", sys.argv[4]], cwd=Workspace("/"), env=env, state_dir=state_dir
        )
        inner = (await child.stdout.readline()).decode().strip()
        print(child.pid, inner, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def ended(pid: int) -> None:
    """Wait until a process is gone, or only waits to be forgotten."""
    async with asyncio.timeout(30):
        while notes._look(pid) is not None:  # noqa: ASYNC110 - of the system
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("left", ["the child lives on", "the child is gone"])
async def test_what_a_killed_codesdk_left_is_ended_by_the_next_one(tmp_path: Path, left: str):
    home = str(tmp_path / "home")
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, left, str(tmp_path / "data"), home, CHILD),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    child, inner = (int(pid) for pid in (await parent.stdout.readline()).split())
    assert await parent.wait() == -signal.SIGKILL
    if left == "the child is gone":
        await ended(child)
    assert notes._look(inner) is not None
    folder = tmp_path / "data" / "runtimes" / PROCESSES
    assert len(list(folder.iterdir())) == 1
    async with CodeSDK.open(tmp_path / "data"):
        await ended(child)
        await ended(inner)
        assert list(folder.iterdir()) == []


async def test_a_child_that_was_stopped_leaves_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def none() -> bool:
        return False

    monkeypatch.setattr(process, "has_namespaces", none)
    child = await start_child(["sleep", "1000"], cwd=Workspace("/"), env={}, state_dir=str(tmp_path))
    (note,) = (tmp_path / PROCESSES).iterdir()
    assert msgspec.json.decode(note.read_bytes(), type=Note).pid == child.pid
    await child.stop(0)
    assert list((tmp_path / PROCESSES).iterdir()) == []


async def test_a_child_in_a_namespace_needs_no_note(tmp_path: Path):
    child = await start_child(["sleep", "1000"], cwd=Workspace("/"), env={}, state_dir=str(tmp_path))
    await child.stop(0)
    assert not (tmp_path / PROCESSES).exists()


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is none of ours."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {"HOME": "/home/of/a/stranger"}, setsid=True)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("other", [{"started": 1}, {"boot": "the one before"}])
def test_a_process_that_has_the_number_by_now_is_left_alone(
    tmp_path: Path, stranger: int, other: dict[str, str | int]
):
    path = write_note(str(tmp_path), stranger, "/home/of/a/stranger")
    assert path is not None
    note = msgspec.json.decode(path.read_bytes(), type=Note)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, **other)))
    assert sweep(str(tmp_path)) == 0
    assert notes._look(stranger) is not None
    assert list((tmp_path / PROCESSES).iterdir()) == []


@pytest.mark.parametrize("ours", [True, False])
def test_a_session_without_its_first_process_is_ours_only_with_its_home(tmp_path: Path, ours: bool):
    first = subprocess.Popen(
        ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"],
        env={"PATH": os.defpath, "HOME": "/home/of/this"},
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    left = int(first.communicate()[0])
    home = "/home/of/this" if ours else "/home/of/another"
    note = Note(pid=first.pid, started=1, boot=notes._boot(), home=home)
    (tmp_path / PROCESSES).mkdir()
    (tmp_path / PROCESSES / "1-1.json").write_bytes(msgspec.json.encode(note))
    try:
        assert sweep(str(tmp_path)) == int(ours)
        assert (notes._look(left) is None) is ours
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


def test_notes_that_cannot_be_read_are_forgotten(tmp_path: Path):
    (tmp_path / PROCESSES).mkdir()
    (tmp_path / PROCESSES / "1-1.json").write_text("{half a no")
    assert sweep(str(tmp_path)) == 0
    assert list((tmp_path / PROCESSES).iterdir()) == []
    assert sweep(str(tmp_path / "nowhere")) == 0
