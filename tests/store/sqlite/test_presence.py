"""A database's files are missed at the next look, however it happened, and are left alone while their folder is the same."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from codesdk.contract.errors import StorageFailure
from codesdk.store.sqlite import presence
from codesdk.store.sqlite.presence import Presence


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "codesdk.db"
    path.parent.mkdir()
    path.write_bytes(b"database")
    path.with_name("codesdk.db-wal").write_bytes(b"log")
    return path


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def replace_folder(path: Path) -> None:
    folder = path.parent
    shutil.copytree(folder, folder.with_name("copy"))
    folder.rename(folder.with_name("old"))
    folder.with_name("copy").rename(folder)


WAYS: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "replaced": replace,
    "with its folder": lambda path: shutil.rmtree(path.parent),
    "replaced with its folder": replace_folder,
}


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("name", ["codesdk.db", "codesdk.db-wal"])
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_gone_is_missed_at_every_look(
    path: Path, name: str, way: str, settled: bool, monkeypatch: pytest.MonkeyPatch
):
    files = Presence(path)
    files.check()
    if settled:
        monkeypatch.setattr(presence, "_SETTLED_S", 0.0)
        files = Presence(path)
        files.check()
    WAYS[way](path.with_name(name))
    for _ in range(2):
        with pytest.raises(StorageFailure, match="was deleted or replaced"):
            files.check()


def test_a_log_may_appear_later_and_is_missed_from_then_on(path: Path):
    log = path.with_name("codesdk.db-wal")
    log.unlink()
    files = Presence(path)
    files.check()
    log.write_bytes(b"log")
    files.check()
    replace(log)
    with pytest.raises(StorageFailure, match=r"codesdk\.db-wal"):
        files.check()


def test_the_files_are_not_looked_at_while_their_folder_is_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(presence, "_SETTLED_S", 0.0)
    files, looked = Presence(path), list[str]()
    files.check()
    stat = os.stat

    def noted(where: str) -> os.stat_result:
        looked.append(where)
        return stat(where)

    monkeypatch.setattr(os, "stat", noted)
    files.check()
    files.check()
    assert looked == [str(path.parent)] * 2
    path.with_name("new").touch()
    looked.clear()
    files.check()
    assert looked == [str(path.parent), str(path), str(path.with_name("codesdk.db-wal"))]
