"""A process killed while it seals equipment: a session has all of it or does not exist, and no secret stays behind."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from codesdk import CodeSDK
from codesdk.engine import unseal
from codesdk.engine.checks.verify import verify_session

SECRET = "correct-horse-battery"
PROGRAM = f"""
import asyncio, os, signal, sys
from pathlib import Path
from codesdk import CodeSDK
from codesdk.store.equipment import FileEquipment
from codesdk.store.sqlite.log import SqliteLog

data, moment = Path(sys.argv[1]), sys.argv[2]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

save, delete, replace = FileEquipment.save, SqliteLog.delete, Path.replace

async def save_and_die(self, *args):
    await save(self, *args)
    die()

async def delete_and_die(self, *args):
    await delete(self, *args)
    die()

async def main():
    async with CodeSDK.open(data) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=data, secrets=["{SECRET}"])
        print(session.id, flush=True)
        if moment == "before it has its name":
            Path.replace = die
            await sdk.create_session(runtime="scripted", workspace=data, secrets=["{SECRET}"])
        elif moment == "before the first event":
            FileEquipment.save = save_and_die
            await sdk.create_session(runtime="scripted", workspace=data, secrets=["{SECRET}"])
        elif moment == "before the log names it":
            FileEquipment.save = save_and_die
            await sdk.session(session.id, secrets=["another-secret"])
        else:
            SqliteLog.delete = delete_and_die
            await sdk.delete_session(session.id)

asyncio.run(main())
"""


async def kill(data: Path, moment: str) -> str:
    """Run the program until it is killed. Return the session that it had created."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(data), moment, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await child.communicate()
    assert child.returncode == -signal.SIGKILL
    return told.decode().strip()


def left(data: Path) -> int:
    """Return how many files of the directory hold the secret."""
    return sum(SECRET.encode() in path.read_bytes() for path in data.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("moment", "before", "after"),
    [
        ("before it has its name", 2, 1),
        ("before the first event", 2, 1),
        ("before the log names it", 1, 1),
        ("before a deleted session's is gone", 1, 0),
    ],
)
async def test_after_a_kill_each_session_has_its_equipment_and_nothing_else_is_kept(
    tmp_path: Path, moment: str, before: int, after: int
):
    session_id = await kill(tmp_path, moment)
    assert left(tmp_path) == before
    async with CodeSDK.open(tmp_path) as sdk:
        rows = await sdk.sessions()
        assert [row.session_id for row in rows] == [session_id][:after]
        for row in rows:
            assert SECRET in (await unseal(sdk.engine.ports.equipment, row.session_id)).secrets
            assert await verify_session(sdk.archive.log, sdk.archive.blobs, row.session_id) == []
    assert left(tmp_path) == after
