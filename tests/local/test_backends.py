"""A store backend is a folder and a line: a toy one, the memory log in a folder of its own, runs sessions."""

import asyncio
from pathlib import Path
from typing import Self

import pytest
from tests.store.samples import session, texts

from codesdk import CodeSDK
from codesdk.contract.errors import InvalidRequest, NotFound
from codesdk.contract.ports import Blobs, StoredLog, Synchronous
from codesdk.local.directory import DATABASE, DataDir
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.store.backends import BACKENDS
from codesdk.store.memory import MemoryLog

pytestmark = pytest.mark.anyio

KEPT: dict[Path, "ToyLog"] = {}


class ToyLog(MemoryLog):
    """What a backend's folder would hold: a log that can be opened again as long as the process lives."""

    @classmethod
    async def open(
        cls, path: Path, *, synchronous: Synchronous = "auto", max_pages: int | None = None
    ) -> Self:
        await asyncio.to_thread(path.mkdir, exist_ok=True)
        KEPT[path] = log = cls()
        return log

    @classmethod
    async def open_reader(cls, path: Path) -> "ToyLog":
        return KEPT[path]

    def blobs(self, files: Blobs) -> Blobs:
        return files

    async def last_owner(self) -> str | None:
        return None

    async def bytes_of(self, session_id: str) -> int:
        return sum(len(frame.data) for frame in await self.read(session_id, 0, 1_000))

    async def unused_bytes(self) -> int:
        return 0

    async def trim_uploads(self, before: str, *, dry_run: bool = False) -> tuple[int, int]:
        return 0, 0

    async def vacuum(self, *, rewrite: bool = False) -> int:
        return 0


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(BACKENDS, "toy", f"{__name__}:ToyLog")
    return "toy"


async def test_a_data_directory_opens_on_a_backend_that_one_line_adds(toy: str, tmp_path: Path):
    data = await DataDir.open_writer(tmp_path, backend=toy)
    log: StoredLog = data.log
    await log.create(session(), data.owner)
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=True)
    name = await data.blobs.put(b"blob")
    reader = await DataDir.open_reader(tmp_path, backend=toy)
    assert isinstance(log, ToyLog)
    assert texts(await reader.log.read("ses_1", 0, 10)) == [b"a", b"b"]
    assert (await reader.blobs.get(name), await reader.log.bytes_of("ses_1")) == (b"blob", 2)
    await data.close()
    assert await asyncio.to_thread(lambda: {path.name for path in tmp_path.iterdir()}) == {
        DATABASE,
        "blobs",
        "lock",
        "owner",
    }


async def test_a_session_runs_on_a_backend_that_one_line_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    # `CodeSDK.open` has no choice of backends yet, so the toy one takes the place of the one it names.
    monkeypatch.setitem(BACKENDS, "sqlite", f"{__name__}:ToyLog")
    script = parse_object(
        {
            "turns": [
                {"steps": [{"call": {"tool": "workspace.read", "input": {"path": "a.txt"}}}]},
                {"steps": [{"text": "Read."}]},
            ]
        },
        "reads",
    )
    (tmp_path / "a.txt").write_text("hello")
    runtimes = {"scripted": ScriptedRuntime(script)}
    async with CodeSDK.open(tmp_path / "data", runtimes=runtimes, allow_yolo=True) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path, permission_mode="yolo")
        result = await (await session.start("Read it.")).result()
        assert (result.state, result.text) == ("completed", "Read.")
        assert isinstance(sdk.archive.log, ToyLog)
        reader = await DataDir.open_reader(tmp_path / "data")
        assert b'"task.completed"' in (await reader.log.read(session.id, 0, 1_000))[-1].data


async def test_an_empty_directory_has_nothing_to_read_whatever_the_backend(toy: str, tmp_path: Path):
    with pytest.raises(NotFound, match="There is no CodeSDK data"):
        await DataDir.open_reader(tmp_path, backend=toy)


async def test_an_unknown_backend_is_refused_by_name_and_the_lock_is_free_again(tmp_path: Path):
    with pytest.raises(InvalidRequest, match="There is no store backend 'stone'; there are: sqlite"):
        await DataDir.open_writer(tmp_path, backend="stone")
    await (await DataDir.open_writer(tmp_path)).close()
