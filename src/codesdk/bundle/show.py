"""`read_bundle`: a bundle from anyone → what it says, and whether it is complete. Nothing is ever unpacked.

A bundle may be made to harm its reader. So it is read as a stream, up to the size that it states, and only
plain files that its manifest names are looked at.
"""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from codesdk.bundle.box import FORMAT, NAME, Manifest
from codesdk.contract.errors import InvalidRequest, NotFound

MAX_UNPACKED = 1024**3
"""The largest bundle that is read, by its unpacked size."""
_MAX_MANIFEST = 16 * 1024**2
_MAX_KEPT = 8 * 1024**2
_PER_FILE = 4096  # room for a file's header and padding in the archive
_MAX_PROBLEMS = 1_000
_SUMMARY = "summary.json"
_CHUNK = 1024 * 1024


class OpenedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle says, and what is wrong with it."""

    manifest: Manifest
    summary: dict[str, Any]
    problems: list[str]


def read_bundle(path: Path) -> OpenedBundle:
    """Read a bundle and check every file against its manifest. Blocking.

    Raise `InvalidRequest` if it is not a bundle, or not safe to read.
    """
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) as unpacked:
            return _Reading(_Tar(cast("BinaryIO", unpacked))).run()
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.") from None
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} is not a support bundle, or it is damaged ({error}).") from error
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}.") from error


class _Tar:
    """The files of an archive, one after the other, each read before the next. Knows only plain files."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._size = 0
        self._left = self._padding = 0
        self.limit = _MAX_MANIFEST + _PER_FILE

    def next(self) -> tarfile.TarInfo | None:
        """Return the next file, or None at the end. Raise if unpacking it could do harm."""
        assert not self._left, "the file before it was read"
        self._take(self._padding)
        header = self._take(tarfile.BLOCKSIZE)
        if not header.strip(b"\0"):
            self._drain()
            return None
        member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        _check(member)
        if member.size > self.limit - self._size:  # before anything of it is unpacked
            raise _too_large()
        self._left, self._padding = member.size, -member.size % tarfile.BLOCKSIZE
        return member

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file."""
        while self._left:
            chunk = self._take(min(self._left, _CHUNK))
            self._left -= len(chunk)
            yield chunk

    def _drain(self) -> None:
        """Read to the end, so that gzip checks its checksum; nothing may follow."""
        while data := self._read(_CHUNK):
            if data.strip(b"\0"):
                raise ValueError("something follows its end")

    def _take(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) != size:
            raise EOFError("it ends too early")
        return data

    def _read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._size += len(data)
        if self._size > self.limit:
            raise _too_large()
        return data


class _Reading:
    def __init__(self, tar: _Tar) -> None:
        self._tar = tar
        self._problems: list[str] = []
        self._summary: dict[str, Any] = {}

    def run(self) -> OpenedBundle:
        manifest = self._manifest()
        root, listed = f"{manifest.session_id}/", {file.path: file for file in manifest.files}
        while (member := self._tar.next()) is not None:
            name = member.name.removeprefix(root)
            known = listed.pop(name, None) if member.name.startswith(root) else None
            size, digest = self._digest(keep=known is not None and name == _SUMMARY)
            if known is None:
                self._tell(f"{member.name} is not in the manifest, or is there twice")
                if len(self._problems) == _MAX_PROBLEMS:  # an archive of nothing but names has no end
                    raise InvalidRequest(
                        "The bundle holds many files that it does not list. Do not unpack it."
                    )
            elif (size, digest) != (known.size, known.sha256):
                self._tell(f"{name} does not match the manifest: it was changed")
        for name in listed:
            self._tell(f"{name} is missing")
        return OpenedBundle(manifest=manifest, summary=self._summary, problems=self._problems)

    def _manifest(self) -> Manifest:
        member = self._tar.next()
        if member is None or not member.name.endswith(f"/{NAME}"):
            raise ValueError("it does not begin with a manifest")
        if member.size > _MAX_MANIFEST:
            raise ValueError("its manifest is too large")
        manifest = msgspec.json.decode(b"".join(self._tar.chunks()), type=Manifest)
        if manifest.format != FORMAT:
            raise ValueError(f"its format is {manifest.format[:80]!r}; only {FORMAT} is known")
        if member.name != f"{manifest.session_id}/{NAME}":
            raise ValueError("its manifest is that of another session")
        # Only now is more than a manifest read: a small archive can unpack to any size.
        stated = sum(max(file.size, 0) + _PER_FILE for file in manifest.files)
        self._tar.limit = min(self._tar.limit + stated, MAX_UNPACKED)
        return manifest

    def _digest(self, *, keep: bool) -> tuple[int, str]:
        size, digest, kept = 0, hashlib.sha256(), b""
        for chunk in self._tar.chunks():
            size += len(chunk)
            digest.update(chunk)
            if keep and size <= _MAX_KEPT:
                kept += chunk
        if keep and size > _MAX_KEPT:
            self._tell(f"{_SUMMARY} is too large to be shown")
        elif keep:
            self._summary = msgspec.json.decode(kept, type=dict[str, Any])
        return size, digest.hexdigest()

    def _tell(self, problem: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)


def _too_large() -> InvalidRequest:
    return InvalidRequest("The bundle is larger than it states, or too large to read. Do not unpack it.")


def _check(member: tarfile.TarInfo) -> None:
    """Refuse what could do harm when somebody unpacks it."""
    if member.type != tarfile.REGTYPE or member.size < 0:
        raise InvalidRequest(
            f"The bundle holds {member.name[:200]!r}, which is not a plain file. Do not unpack it."
        )
    parts = member.name.split("/")
    if ".." in parts or "" in parts or "\\" in member.name:
        raise InvalidRequest(
            f"The bundle holds {member.name[:200]!r}, which leads out of its folder. Do not unpack it."
        )
