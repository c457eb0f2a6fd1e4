"""The manifest: what is in a bundle and what is not. It is the first file of every bundle."""

import msgspec

FORMAT = "codesdk-support-bundle/1"
NAME = "manifest.json"


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
