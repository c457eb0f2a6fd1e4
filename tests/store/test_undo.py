"""What an undo needs: the same tests in memory and on disk, and what only a disk can do."""

import stat
from pathlib import Path

import msgspec
import pytest

from codesdk.contract.errors import StorageFailure
from codesdk.contract.ports import Kept, UndoStore
from codesdk.store.undo import FileUndo, MemoryUndo

pytestmark = pytest.mark.anyio

CHANGED = Kept(
    path="src/a é.bin",
    before=bytes(range(256)) + b"\r\n\0",
    before_mode=0o755,
    after_hash="sha256:00",
    after_mode=0o644,
)
CREATED = Kept(path="new.txt", before=None, after_hash="sha256:01", after_mode=0o600, made_folders=2)
REMOVED = Kept(path="old.txt", before=b"", before_mode=0o640)


@pytest.fixture(params=["memory", "files"])
def undo(request: pytest.FixtureRequest, tmp_path: Path) -> UndoStore:
    return MemoryUndo() if request.param == "memory" else FileUndo(tmp_path / "undo")


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


async def test_what_is_kept_comes_back_byte_for_byte(undo: UndoStore):
    for index, kept in enumerate((CHANGED, CREATED, REMOVED)):
        await undo.keep("ses_1", f"call_1.1.{index}", kept)
    assert [await undo.find("ses_1", f"call_1.1.{index}") for index in range(4)] == [
        CHANGED,
        CREATED,
        REMOVED,
        None,
    ]
    assert await undo.find("ses_2", "call_1.1.0") is None


async def test_a_name_that_is_kept_again_holds_the_new(undo: UndoStore):
    await undo.keep("ses_1", "call_1.1.0", CHANGED)
    done = msgspec.structs.replace(CHANGED, before=None, undone=True)
    await undo.keep("ses_1", "call_1.1.0", done)
    assert await undo.find("ses_1", "call_1.1.0") == done


async def test_a_session_that_is_dropped_leaves_nothing_and_others_stay(undo: UndoStore):
    assert await undo.sessions() == []
    for session in ("ses_1", "ses_2"):
        await undo.keep(session, "call_1.1.0", CHANGED)
    assert await undo.sessions() == ["ses_1", "ses_2"]
    await undo.drop("ses_1")
    await undo.drop("ses_1")
    assert await undo.sessions() == ["ses_2"]
    assert await undo.find("ses_1", "call_1.1.0") is None
    assert await undo.find("ses_2", "call_1.1.0") == CHANGED


async def test_the_files_are_for_the_owner_only_and_no_temporary_one_stays(tmp_path: Path):
    undo = FileUndo(tmp_path / "undo")
    await undo.keep("ses_1", "call_1.1.0", CHANGED)
    assert names(tmp_path) == ["undo", "undo/ses_1", "undo/ses_1/call_1.1.0"]
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names(tmp_path)]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", ".tmp-x", "a\0b", "a\n"])
async def test_a_name_that_is_no_name_reaches_no_file(tmp_path: Path, name: str):
    (tmp_path / "x").write_bytes(msgspec.msgpack.encode(CHANGED))
    undo = FileUndo(tmp_path / "undo")
    for session, entry in ((name, "call_1.1.0"), ("ses_1", name)):
        with pytest.raises(StorageFailure, match="cannot be the name of kept content"):
            await undo.keep(session, entry, CHANGED)
        assert await undo.find(session, entry) is None
    await undo.drop(name)
    assert names(tmp_path) == ["x"]


async def test_damage_and_a_place_that_cannot_be_written_are_said(tmp_path: Path):
    undo = FileUndo(tmp_path / "undo")
    await undo.keep("ses_1", "call_1.1.0", CHANGED)
    (tmp_path / "undo" / "ses_1" / "call_1.1.0").write_bytes(b"\xc1")
    with pytest.raises(StorageFailure, match="is damaged"):
        await undo.find("ses_1", "call_1.1.0")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailure, match="What an undo needs cannot be kept"):
        await FileUndo(tmp_path / "file").keep("ses_1", "call_1.1.0", CHANGED)
