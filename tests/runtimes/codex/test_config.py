"""The files that we write for codex, and what it may have put in their place."""

import os
from pathlib import Path

import pytest

from codesdk.runtimes.codex.config import _write as write, forget_tokens


def test_tokens_are_taken_out_of_the_configuration(tmp_path: Path):
    (tmp_path / "config.toml").write_text('url = "http://host/TOKEN-0123456789"')
    forget_tokens(tmp_path, ["TOKEN-0123456789"])
    assert (tmp_path / "config.toml").read_text() == 'url = "http://host/[redacted]"'
    assert (tmp_path / "config.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["link", "pipe", "large"])
def test_what_is_not_the_configuration_is_removed_and_not_read(tmp_path: Path, kind: str):
    path, other = tmp_path / "config.toml", tmp_path / "other"
    other.write_text("TOKEN-0123456789")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    forget_tokens(tmp_path, ["TOKEN-0123456789"])
    assert not os.path.lexists(path)
    assert other.read_text() == "TOKEN-0123456789"


def test_a_link_is_not_written_through(tmp_path: Path):
    (tmp_path / "other").write_text("kept")
    (tmp_path / "config.toml").symlink_to(tmp_path / "other")
    write(tmp_path / "config.toml", "new")
    assert (tmp_path / "other").read_text() == "kept"
    assert (tmp_path / "config.toml").read_text() == "new"
