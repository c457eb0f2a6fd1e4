"""Places that programs outside obey: links to them are told of, and lead nobody out of the workspace."""

from pathlib import Path

import pytest

from codesdk.contract.workspace import Workspace
from codesdk.sandbox.triggers import TriggerWatch


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "outside" / "hooks").mkdir(parents=True)
    return tmp_path / "workspace"


def told(watch: TriggerWatch) -> str:
    warning = watch.warning() or "nothing"
    return warning.partition("obey: ")[2].partition(". Look")[0] or warning


@pytest.mark.parametrize(("link", "places"), [(".husky", ".husky/"), (".vscode", ".vscode/tasks.json")])
def test_what_lies_behind_a_link_out_of_the_workspace_is_not_looked_at(place: Path, link: str, places: str):
    (place / link).symlink_to(place.parent / "outside")
    watch = TriggerWatch(Workspace(str(place)))
    (place.parent / "outside" / "new").write_text("x")
    (place.parent / "outside" / "tasks.json").write_text("x")
    assert told(watch) == "nothing"
    (place / link).unlink()
    (place / link).symlink_to(place.parent / "outside" / "hooks")
    assert places in told(watch)


def test_a_new_link_is_told_of(place: Path):
    watch = TriggerWatch(Workspace(str(place)))
    (place / ".husky").symlink_to(place.parent / "outside")
    assert told(watch) == ".husky/"


def test_a_link_that_stays_in_the_workspace_is_followed_as_programs_do(place: Path):
    (place / "tools").mkdir()
    (place / ".husky").symlink_to("tools")
    watch = TriggerWatch(Workspace(str(place)))
    (place / "tools" / "pre-commit").write_text("x")
    assert told(watch) == ".husky/"
