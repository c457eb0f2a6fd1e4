"""What a survey found is opened as it was found, though the way to it may lead elsewhere by then."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codesdk.contract.errors import InvalidRequest
from codesdk.sandbox.survey import open_found, survey


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
