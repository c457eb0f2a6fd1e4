"""A bundle as its reader has it: everything in it by name, read with the standard library alone."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from codesdk import CodeSDK
from codesdk.bundle import Manifest


class Unpacked:
    """The files of a bundle."""

    def __init__(self, data: bytes) -> None:
        self.bytes = gzip.decompress(data)
        with tarfile.open(fileobj=io.BytesIO(self.bytes)) as tar:
            self.members = tar.getmembers()
            self.root = self.members[0].name.partition("/")[0]
            self.files: dict[str, bytes] = {}
            for member in self.members:
                file = tar.extractfile(member)
                assert file is not None
                self.files[member.name.removeprefix(f"{self.root}/")] = file.read()

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])

    def below(self, folder: str) -> list[str]:
        return [name for name in self.files if name.startswith(f"{folder}/")]

    @property
    def events(self) -> list[Any]:
        lines = b"".join(self.files[name] for name in self.below("events")).split(b"\n")
        return [json.loads(line) for line in lines if line]

    @property
    def calls(self) -> list[Any]:
        return [self.json(name) for name in self.below("tools")]


async def bundled(sdk: CodeSDK, session_id: str, **options: Any) -> tuple[Manifest, Unpacked]:
    """Write a session's bundle and open it."""
    target = io.BytesIO()
    manifest = await sdk.write_bundle(session_id, target, **options)
    return manifest, Unpacked(target.getvalue())


def written(path: Path) -> Unpacked:
    return Unpacked(path.read_bytes())
