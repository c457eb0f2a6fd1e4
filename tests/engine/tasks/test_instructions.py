"""Instruction files are read from the directory that the session works in, and from no other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from codesdk.contract.runtime import Instructions
from codesdk.contract.settings import SessionSettings
from codesdk.contract.workspace import Workspace
from codesdk.engine.tasks.instructions import MAX_BYTES, capture
from codesdk.redaction import Redactor
from codesdk.sandbox import identify

pytestmark = pytest.mark.anyio


def scope_of(folder: Path) -> Any:
    """As much of a session's scope as the files need."""
    return SimpleNamespace(
        settings=SessionSettings(implicit_sources="capture"),
        workspace=identify(Workspace(str(folder))),
        redactor=Redactor(["hunter2"]),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "TOY.md").write_text("Obey somebody else.")
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "TOY.md").write_text("Be kind to hunter2.")
    return folder


def replace(folder: Path) -> None:
    folder.rename(folder.parent / "before")
    folder.symlink_to(folder.parent / "outside")


async def test_plain_text_is_read_and_whatever_else_has_the_name_is_left_out(folder: Path):
    (folder / "LINK.md").symlink_to(folder.parent / "outside" / "TOY.md")
    (folder / "LONG.md").write_text("x" * (MAX_BYTES + 1))
    (folder / "BYTES.md").write_bytes(b"\xff")
    names = ["TOY.md", "MISSING.md", "LINK.md", "LONG.md", "BYTES.md"]
    captured = await capture(scope_of(folder), names)
    assert captured is not None
    assert captured.files == [Instructions("TOY.md", "Be kind to [redacted].")]
    assert [(each["origin"], each["reason"]) for each in captured.document["left_out"]] == [
        (
            "file:workspace/LINK.md",
            "It was not read: LINK.md is a symbolic link; symbolic links are not followed.",
        ),
        ("file:workspace/LONG.md", "It is longer than 65,536 bytes."),
        ("file:workspace/BYTES.md", "It is not UTF-8 text."),
    ]


async def test_nothing_is_read_in_what_took_the_place_of_the_workspace(folder: Path):
    scope = scope_of(folder)
    replace(folder)
    captured = await capture(scope, ["TOY.md"])
    assert captured is not None
    assert captured.files == []
    assert "workspace is a symbolic link" in captured.document["left_out"][0]["reason"]
