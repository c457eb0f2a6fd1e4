"""Sealed equipment on disk: for the owner only, whole or not at all, gone when forgotten."""

import os
import stat
from pathlib import Path

import pytest

from codesdk.contract.errors import StorageFailure
from codesdk.contract.ports import EquipmentStore
from codesdk.store.equipment import FileEquipment, MemoryEquipment


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> EquipmentStore:
    return MemoryEquipment() if request.param == "memory" else FileEquipment(tmp_path / "equipment")


async def test_what_was_saved_last_is_loaded_until_it_is_forgotten(store: EquipmentStore):
    assert (await store.load("ses_1"), await store.sessions()) == (None, [])
    await store.save("ses_1", b"first")
    await store.save("ses_1", b"second")
    await store.save("ses_2", b"other")
    assert (await store.load("ses_1"), sorted(await store.sessions())) == (b"second", ["ses_1", "ses_2"])
    await store.forget("ses_1")
    await store.forget("ses_1")
    assert (await store.load("ses_1"), await store.sessions()) == (None, ["ses_2"])


async def test_folder_and_files_are_the_owners_whatever_the_umask_says(tmp_path: Path):
    root = tmp_path / "equipment"
    root.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        await FileEquipment(root).save("ses_1", b"sealed")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (root, root / "ses_1")] == [0o700, 0o600]


async def test_what_a_broken_write_left_behind_is_removed_and_never_listed(tmp_path: Path):
    store = FileEquipment(tmp_path)
    (tmp_path / ".tmp-half").write_bytes(b"half of a secret")
    assert await store.sessions() == []
    assert not (tmp_path / ".tmp-half").exists()


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "", ".", "..", "a/b", ".tmp-x"])
async def test_a_name_that_is_no_sessions_reaches_no_file(tmp_path: Path, name: str):
    store = FileEquipment(tmp_path / "equipment")
    with pytest.raises(StorageFailure):
        await store.save(name, b"sealed")
    assert await store.load(name) is None
    await store.forget(name)


async def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path):
    (tmp_path / "elsewhere").write_bytes(b"planted")
    (tmp_path / "ses_1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailure, match="cannot be read"):
        await FileEquipment(tmp_path).load("ses_1")


async def test_what_others_could_read_or_replace_is_named_with_what_to_do(tmp_path: Path):
    store = FileEquipment(tmp_path / "equipment")
    assert store.exposed() == []
    await store.save("ses_1", b"sealed")
    await store.save("ses_2", b"sealed")
    assert store.exposed() == []
    assert store.exposed("ses_3") == []
    folder = tmp_path / "equipment"
    folder.chmod(0o750)
    (folder / "ses_1").chmod(0o644)
    (folder / "ses_2").unlink()
    (folder / "ses_2").symlink_to("/dev/null")
    assert store.exposed() == [
        f"{folder} is open to others (mode 0750); run chmod 700 on it",
        f"{folder / 'ses_1'} is open to others (mode 0644); run chmod 600 on it",
        f"{folder / 'ses_2'} is not what CodeSDK puts there; remove it and equip the session again",
    ]
    folder.chmod(0o700)
    assert store.exposed("ses_1") == [
        f"{folder / 'ses_1'} is open to others (mode 0644); run chmod 600 on it"
    ]


async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path):
    (tmp_path / "equipment").write_text("in the way")
    with pytest.raises(StorageFailure, match="cannot be sealed"):
        await FileEquipment(tmp_path / "equipment").save("ses_1", b"sealed")
