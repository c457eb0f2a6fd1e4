"""Files for a bundle → redacted, kept within a limit, and packed in a fixed order after a manifest of them."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from codesdk.redaction import MARKER, Redactor

FORMAT = "codesdk-support-bundle/1"
NAME = "manifest.json"
"""The name of the manifest, which is the first file of every bundle."""
_FULL = "the bundle is as large as it may be; raise its limit (--max-size)"

_MAX_LEFT_OUT = 2_000


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a bundle, and what it is."""

    path: str
    size: int
    sha256: str
    what: str


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not in a bundle, and why."""

    what: str
    why: str
    size: int | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The list of everything in a bundle."""

    format: str
    created_at: str
    session_id: str
    codesdk_version: str
    contract_version: int
    last_seq: int
    max_bytes: int
    files: list[BundledFile]
    left_out: list[LeftOut]


class Box:
    """Collects files in a folder until they are packed, so that a large bundle needs little memory."""

    def __init__(self, folder: Path, redactor: Redactor, max_bytes: int) -> None:
        self._folder = folder
        self._redactor = redactor
        self.max_bytes = max_bytes
        self._files: dict[str, BundledFile] = {}
        self._left_out: list[LeftOut] = []
        self._missing = 0
        self.size = 0

    def add_json(self, path: str, value: Any, what: str) -> bool:
        """Add a document as indented JSON. Return whether there was room."""
        plain = msgspec.to_builtins(value, order="deterministic", enc_hook=str)
        return self.add(path, msgspec.json.format(self._encode(plain), indent=2) + b"\n", what)

    def add(self, path: str, data: bytes, what: str) -> bool:
        """Add bytes. Return whether there was room; if not, list them as left out."""
        clean = self._redactor.data(data)
        if self.size + len(clean) > self.max_bytes:
            self.leave_out(f"{path}: {what}", _FULL, len(clean))
            return False
        # A flat, safe name in the folder, whatever the path in the bundle is.
        name = hashlib.sha256(path.encode()).hexdigest()
        (self._folder / name).write_bytes(clean)
        digest = hashlib.sha256(clean).hexdigest()
        self._files[path] = BundledFile(
            path=path, size=len(clean), sha256=digest, what=self._redactor.text(what)
        )
        self.size += len(clean)
        return True

    def remove(self, path: str) -> int:
        """Remove a file to make room. Return its size."""
        gone = self._files.pop(path)
        (self._folder / hashlib.sha256(path.encode()).hexdigest()).unlink()
        self.size -= gone.size
        return gone.size

    def size_of(self, path: str) -> int:
        """Return the size of a file in the box."""
        return self._files[path].size

    def leave_out(self, what: str, why: str, size: int | None = None) -> None:
        """Note that something is not in the bundle."""
        clean = self._redactor.text
        self._missing += 1
        if self._missing <= _MAX_LEFT_OUT:
            self._left_out.append(LeftOut(what=clean(what), why=clean(why), size=size))

    def clean_line(self, data: bytes) -> bytes:
        """Return a line of JSON without secrets; unchanged if it has none."""
        return self._encode(msgspec.json.decode(data), data)

    def _encode(self, value: Any, before: bytes | None = None) -> bytes:
        """Return a value as JSON without secrets, or `before`, the bytes it was read from, if it has none."""
        clean = self._redactor.value(value)
        data = before if before is not None and clean is value else msgspec.json.encode(clean)
        if self._redactor.data(data) is data:
            return data
        return msgspec.json.encode(self._without_numbers(clean))

    def _without_numbers(self, value: Any) -> Any:
        """Replace numbers that are secrets: the redactor looks only at texts."""
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {name: self._without_numbers(item) for name, item in pairs}
        if isinstance(value, list):
            return [self._without_numbers(item) for item in cast("list[Any]", value)]
        if isinstance(value, int | float) and self._redactor.text(repr(value)) != repr(value):
            return MARKER
        return value

    @property
    def left_out(self) -> list[LeftOut]:
        """What is not in the bundle. A list that was cut says so at its end."""
        more = self._missing - len(self._left_out)
        if not more:
            return self._left_out
        return [*self._left_out, LeftOut(what=f"{more:,} more", why="this list has an end")]

    @property
    def files(self) -> list[BundledFile]:
        """The files in the order in which they are packed."""
        return [self._files[path] for path in sorted(self._files)]

    def pack(self, target: BinaryIO, manifest: Manifest, mtime: int) -> None:
        """Write a tar.gz: the manifest, then the files by name, all with the session's time. Blocking."""
        root = manifest.session_id
        listing = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        # Without names and times of this machine, so that the same files make the same archive.
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
        ):
            tar.addfile(_entry(f"{root}/{NAME}", len(listing), mtime), io.BytesIO(listing))
            for file in manifest.files:
                name = hashlib.sha256(file.path.encode()).hexdigest()
                with (self._folder / name).open("rb") as data:
                    tar.addfile(_entry(f"{root}/{file.path}", file.size, mtime), data)


def _entry(path: str, size: int, mtime: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mtime, entry.mode = size, mtime, 0o600
    return entry
