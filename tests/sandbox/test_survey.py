"""What a survey found is opened as it was found, though the way to it may lead elsewhere by then."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codesdk.contract.errors import InvalidRequest
from codesdk.sandbox.files import paths
from codesdk.sandbox.files.kernel import Unsupported
from codesdk.sandbox.survey import Found, _Walk, open_found, survey


@pytest.fixture(params=["openat2", "component by component"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open with one call of the kernel, and as on a system that does not have it."""

    def missing(*_: object, **__: object) -> int:
        raise Unsupported

    if request.param != "openat2":
        monkeypatch.setattr(paths, "open_beneath", missing)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "workspace" / "sub").mkdir(parents=True)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "workspace" / "sub" / "key").hardlink_to(tmp_path / "kept")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("secret")
    fd = os.open(tmp_path / "workspace", os.O_PATH)
    yield fd
    os.close(fd)


def test_a_folder_that_became_a_link_shows_no_file_of_elsewhere(workspace: int, tmp_path: Path):
    (found,) = survey(workspace).linked
    os.close(open_found(workspace, found))
    (tmp_path / "workspace" / "sub").rename(tmp_path / "workspace" / "before")
    (tmp_path / "workspace" / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidRequest, match="sub/key was replaced"):
        open_found(workspace, found)


def test_a_folder_that_becomes_a_link_while_it_is_searched_is_not_entered(
    workspace: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file outside with two names would be found through the link, and compared with itself when it is opened."""
    (tmp_path / "outside" / "deep").mkdir()
    (tmp_path / "outside" / "deep" / "key").hardlink_to(tmp_path / "outside" / "key")
    (tmp_path / "workspace" / "sub" / "deep").mkdir()
    entered = _Walk._enter

    def swap(self: _Walk, place: str) -> list[str]:
        if place == "sub/deep":  # it was listed as a directory
            (tmp_path / "workspace" / "sub").rename(tmp_path / "workspace" / "before")
            (tmp_path / "workspace" / "sub").symlink_to(tmp_path / "outside")
        return entered(self, place)

    monkeypatch.setattr(_Walk, "_enter", swap)
    found = survey(workspace)
    assert [each.path for each in found.linked] == ["sub/key"]
    assert not found.complete
    assert not found.holds(workspace)


def test_a_finding_is_not_reached_through_a_link_though_it_is_the_same_file(workspace: int, tmp_path: Path):
    info = (tmp_path / "outside" / "key").stat()
    (tmp_path / "workspace" / "way").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidRequest, match="way/key was replaced"):
        open_found(workspace, Found("way/key", (info.st_dev, info.st_ino)))
