"""Full outputs as files: `DIRECTORY/SESSION/KIND-ID.EXT`, for their owner only. Implements `ArtifactStore`.

An id follows from session, content and kind, so that the same output stored twice is one file.
"""

import asyncio
import re
import shutil
from pathlib import Path

from codesdk.contract.canonical import content_hash
from codesdk.contract.errors import InvalidRequest, NotFound, StorageFailure
from codesdk.contract.ids import artifact_id
from codesdk.minicode.storage.sessions import check_session_id
from codesdk.minicode.types import StoredArtifact
from codesdk.store import write_file

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_ARTIFACT = re.compile(r"art_[0-9a-z]{26}")
_ENDINGS = {"text/plain": "txt", "application/json": "json", "image/png": "png", "image/jpeg": "jpg"}


class FsArtifactStore:
    """The artifacts of sessions, in a directory that is made when the first one is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def directory_of(self, session_id: str) -> Path:
        """Return where the artifacts of a session are. It need not exist."""
        return self._directory / check_session_id(session_id)

    async def write_text(self, session_id: str, kind: str, content: str) -> StoredArtifact:
        """Store a text. What cannot be written as UTF-8 becomes a question mark."""
        return await self.write_bytes(session_id, kind, content.encode("utf-8", "replace"), "text/plain")

    async def write_bytes(
        self, session_id: str, kind: str, data: bytes, media_type: str | None = None
    ) -> StoredArtifact:
        """Store bytes. Raise `InvalidRequest` for a bad id or kind, `StorageFailure` if they cannot be written."""
        if not _KIND.fullmatch(kind):
            raise InvalidRequest(
                f"{kind[:100]!r} cannot be the kind of an artifact: it is a part of its name."
            )
        directory = self.directory_of(session_id)
        media_type = media_type or "application/octet-stream"
        return await asyncio.to_thread(_write, directory, session_id, kind, data, media_type)

    async def read(self, session_id: str, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of a session. Raise `NotFound` if there is none."""
        return await asyncio.to_thread(_read, self.directory_of(session_id), artifact_id)

    async def copy(self, session_id: str, to: str) -> None:
        """Give another session, which has none yet, copies of all artifacts of a session, under their ids."""
        await asyncio.to_thread(_copy, self.directory_of(session_id), self.directory_of(to))

    async def delete(self, session_id: str) -> None:
        """Remove all artifacts of a session, if there are any."""
        await asyncio.to_thread(_remove, self.directory_of(session_id))


def _write(directory: Path, session_id: str, kind: str, data: bytes, media_type: str) -> StoredArtifact:
    found = artifact_id(session_id, content_hash(data), media_type, kind)
    path = directory / f"{kind}-{found}.{_ENDINGS.get(media_type, 'bin')}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, data)
    except OSError as error:
        raise StorageFailure(f"{path}: {error.strerror or error}. The artifact was not stored.") from None
    return StoredArtifact(id=found, path=str(path), size_bytes=len(data), media_type=media_type)


def _read(directory: Path, artifact_id: str) -> bytes:
    if _ARTIFACT.fullmatch(artifact_id):  # it becomes a pattern of names
        for path in directory.glob(f"*-{artifact_id}.*"):
            return path.read_bytes()
    raise NotFound(f"There is no artifact {artifact_id[:100]!r} in this session.")


def _copy(source: Path, target: Path) -> None:
    if not source.is_dir():
        return
    try:
        target.mkdir(mode=0o700)
        for path in source.iterdir():
            write_file(target / path.name, path.read_bytes())
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise StorageFailure(f"{target}: {error.strerror or error}. The artifacts were not copied.") from None


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageFailure(
            f"{directory}: {error.strerror or error}. Its artifacts are still there."
        ) from None
