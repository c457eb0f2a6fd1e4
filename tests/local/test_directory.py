"""One data directory: one writer, any number of readers, clear words when it cannot be had."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.local.rights import AS_OTHERS
from tests.store.samples import session, texts

from codesdk.contract.errors import Conflict, NotFound, StorageFailure
from codesdk.local.directory import DataDir, bind_socket, socket_address

pytestmark = pytest.mark.anyio

SOURCE = str(Path(__file__).parents[2] / "src")


async def fill(path: Path) -> None:
    data = await DataDir.open_writer(path)
    await data.log.create(session(), "me")
    await data.log.append("ses_1", 1, 1, [b"a"], durable=True)
    await data.blobs.put(b"blob")
    await data.blobs.put(b"large" * 100_000)
    await data.close()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def set_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def lock_of(path: Path) -> dict[str, object]:
    return json.loads((path / "lock").read_bytes())


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that another user can reach, for tests that give up their rights."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
        for place in [path, *path.rglob("*")]:
            place.chmod(0o755)


WITHOUT_RIGHTS = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from codesdk.local.directory import DataDir
from codesdk.store import SqliteLog
"""


def run_without_rights(code: str, path: Path) -> str:
    """Run code in a process to which file permissions apply, even if the tests run as root."""
    command = [*AS_OTHERS, sys.executable, "-c", WITHOUT_RIGHTS + code, str(path), SOURCE]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


async def test_a_directory_is_made_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "new" / "data"
    await fill(path)
    assert mode_of(path) == 0o700
    assert names(path) == ["blobs", "codesdk.db", "lock", "owner"]
    assert [mode_of(path / name) for name in names(path)] == [0o700, 0o600, 0o600, 0o600]


async def test_a_second_writer_is_told_who_is_there(tmp_path: Path):
    first = await DataDir.open_writer(tmp_path)
    with pytest.raises(Conflict, match=f"in use by pid {os.getpid()} ") as caught:
        await DataDir.open_writer(tmp_path)
    assert caught.value.details is not None
    assert caught.value.details == {"path": str(tmp_path), **lock_of(tmp_path)}
    await first.close()
    second = await DataDir.open_writer(tmp_path)
    await second.close()
    await second.close()


async def test_a_lock_file_without_sense_is_no_obstacle(tmp_path: Path):
    write(tmp_path / "lock", b"\xffgarbage")
    first = await DataDir.open_writer(tmp_path)
    assert lock_of(tmp_path)["pid"] == os.getpid()
    write(tmp_path / "lock", b"[1]")
    with pytest.raises(Conflict, match="in use by another process"):
        await DataDir.open_writer(tmp_path)
    await first.close()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


async def test_the_lock_of_a_killed_process_is_free(tmp_path: Path):
    code = f"""
import asyncio, sys
sys.path.insert(0, {SOURCE!r})
from pathlib import Path
from codesdk.local.directory import DataDir
async def main():
    await DataDir.open_writer(Path({str(tmp_path)!r}))
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    with pytest.raises(Conflict, match=f"pid {child.pid} "):
        await DataDir.open_writer(tmp_path)
    child.kill()
    await child.wait()
    data = await DataDir.open_writer(tmp_path)
    await data.close()


async def test_a_failure_to_open_gives_the_lock_back(tmp_path: Path):
    write(tmp_path / "codesdk.db", b"garbage" * 1000)
    for _ in range(2):
        with pytest.raises(StorageFailure, match="not a database"):
            await DataDir.open_writer(tmp_path)


async def test_a_reader_needs_something_to_read(tmp_path: Path):
    with pytest.raises(NotFound, match=r"no CodeSDK data in .*\. Check the path"):
        await DataDir.open_reader(tmp_path / "nowhere")
    assert names(tmp_path) == []


async def test_a_reader_sees_what_a_live_writer_commits_and_is_not_in_its_way(tmp_path: Path):
    writer = await DataDir.open_writer(tmp_path)
    reader = await DataDir.open_reader(tmp_path)
    await writer.log.create(session(), "me")
    await writer.log.append("ses_1", 1, 1, [b"a"], durable=False)
    name = await writer.blobs.put(b"blob")
    assert texts(await reader.log.read("ses_1", 0, 9)) == [b"a"]
    assert await reader.blobs.get(name) == b"blob"
    await writer.close()
    assert texts(await reader.log.read("ses_1", 0, 9)) == [b"a"]
    await reader.close()
    again = await DataDir.open_writer(tmp_path)
    await again.log.append("ses_1", 1, 2, [b"b"], durable=False)
    await again.close()


async def test_a_read_only_directory_can_be_read(public: Path):
    path = public / "data"
    await fill(path)
    set_mode(path / "codesdk.db", 0o444)
    set_mode(path, 0o555)
    found = run_without_rights(
        """
async def main():
    data = await DataDir.open_reader(Path(sys.argv[1]))
    print([frame.data for frame in await data.log.read("ses_1", 0, 9)])
    await data.log.changed(0.001)
    await data.close()
asyncio.run(main())
""",
        path,
    )
    assert found == "[b'a']\n"
    assert names(path) == ["blobs", "codesdk.db", "lock", "owner"]


async def test_a_read_only_directory_with_unmerged_commits_is_refused_with_advice(public: Path):
    path = public / "data"
    await fill(path)
    write(path / "codesdk.db-wal", b"something")
    set_mode(path / "codesdk.db", 0o444)
    set_mode(path, 0o555)
    code = """
async def main():
    try:
        await DataDir.open_reader(Path(sys.argv[1]))
    except Exception as error:
        print(type(error).__name__, error)
asyncio.run(main())
"""
    found = run_without_rights(code, path)
    assert found.startswith("StorageFailure")
    assert "Copy the data directory" in found


@pytest.mark.parametrize("name", [".", "data"])
async def test_a_directory_that_cannot_be_written_is_a_clear_failure(public: Path, name: str):
    set_mode(public, 0o555)
    code = """
async def main():
    try:
        await DataDir.open_writer(Path(sys.argv[1]))
    except Exception as error:
        print(type(error).__name__, error)
asyncio.run(main())
"""
    found = run_without_rights(code, public / name)
    assert found.startswith("StorageFailure The data directory")
    assert "Permission denied" in found


async def test_a_path_through_a_file_is_a_clear_failure(tmp_path: Path):
    write(tmp_path / "file", b"")
    with pytest.raises(StorageFailure, match=r"The data directory .* cannot be written"):
        await DataDir.open_writer(tmp_path / "file" / "data")


@pytest.mark.parametrize("depth", [0, 12])
async def test_a_socket_works_however_long_the_path_is(tmp_path: Path, depth: int):
    path = tmp_path.joinpath(*["a-rather-long-name"] * depth)
    await fill(path)
    bind_socket(path).close()  # an earlier writer's, left behind
    listener = bind_socket(path)
    assert mode_of(path / "control.sock") == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        with socket_address(path) as address:
            client.connect(address)
        server, _ = listener.accept()
        client.sendall(b"hello")
        assert server.recv(5) == b"hello"
        server.close()
    listener.close()
