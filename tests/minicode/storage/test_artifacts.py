"""Full outputs as files of their session."""

import stat
from pathlib import Path

import pytest

from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.minicode.storage import FsArtifactStore
from codesdk.minicode.types import StoredArtifact


def content(kept: StoredArtifact) -> str:
    return Path(kept.path).read_text()


def modes(kept: StoredArtifact) -> list[int]:
    path = Path(kept.path)
    return [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_a_text_is_kept_as_a_file_of_its_session(tmp_path: Path):
    store = FsArtifactStore(tmp_path / "artifacts")
    kept = await store.write_text("one", "bash-output", "né\n")
    path = Path(kept.path)
    assert kept == StoredArtifact(id=kept.id, path=str(path), size_bytes=4, media_type="text/plain")
    assert (content(kept), path.parent) == ("né\n", tmp_path / "artifacts" / "one")
    assert path.name == f"bash-output-{kept.id}.txt"
    assert modes(kept) == [0o700, 0o600]


async def test_the_same_content_is_one_file_and_another_is_another(tmp_path: Path):
    store = FsArtifactStore(tmp_path)
    first = await store.write_text("one", "bash", "a")
    assert await store.write_text("one", "bash", "a") == first
    assert (await store.write_text("one", "bash", "b")).id != first.id
    assert (await store.write_text("two", "bash", "a")).path != first.path
    assert len(names_in(tmp_path / "one")) == 2


async def test_bytes_are_kept_with_their_media_type(tmp_path: Path):
    store = FsArtifactStore(tmp_path)
    image = await store.write_bytes("one", "shot", b"\x89PNG", "image/png")
    other = await store.write_bytes("one", "shot", b"\0")
    assert (image.media_type, Path(image.path).suffix) == ("image/png", ".png")
    assert (other.media_type, Path(other.path).suffix) == ("application/octet-stream", ".bin")


async def test_what_is_not_text_is_kept_all_the_same(tmp_path: Path):
    kept = await FsArtifactStore(tmp_path).write_text("one", "bash", "a\ud800b")
    assert content(kept) == "a?b"


@pytest.mark.parametrize(
    ("session_id", "kind"), [("../x", "bash"), ("one", "../bash"), ("one", ""), ("", "bash")]
)
async def test_no_name_leads_out_of_the_directory(tmp_path: Path, session_id: str, kind: str):
    with pytest.raises(InvalidRequest):
        await FsArtifactStore(tmp_path / "artifacts").write_text(session_id, kind, "x")
    assert names_in(tmp_path) == []


async def test_those_of_a_session_go_together(tmp_path: Path):
    store = FsArtifactStore(tmp_path)
    await store.write_text("one", "bash", "a")
    await store.write_text("two", "bash", "a")
    await store.delete("one")
    await store.delete("one")
    assert names_in(tmp_path) == ["two"]


async def test_what_cannot_be_written_is_one_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailure, match="The artifact was not stored"):
        await FsArtifactStore(tmp_path / "file").write_text("one", "bash", "a")
