"""`extension.toml` or `extension.json` → what an extension says of itself, and whether it fits this CodeSDK.

Pure: it is given a snapshot of the directory. Each way in which a manifest can be wrong has its own sentence.
"""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import Record
from codesdk.contract.validation import split_error
from codesdk.extensions.outcomes import (
    CORE_API_VERSION,
    AgentRuntimeCompatibility,
    AgentRuntimeProfile,
    ProfileBinding,
)
from codesdk.extensions.snapshot import Snapshot
from codesdk.extensions.versions import Version, VersionRange, parse_version

MANIFESTS = ("extension.toml", "extension.json")
MAX_BYTES = 64 * 1024
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?")
_FILE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_][A-Za-z0-9_]*\.py")


class Entrypoints(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files with the extension's code."""

    events: str


class Declared(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events that an extension subscribes to, and the actions that it asks for."""

    events: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    actions: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one


class Manifest(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an extension says of itself."""

    name: str
    version: str
    agent_id: str
    display_name: str
    runtime: AgentRuntimeCompatibility
    entrypoints: Entrypoints
    capabilities: Declared = Declared()


def read_manifest(snapshot: Snapshot) -> Manifest:
    """Return the manifest of an extension. Raise `InvalidRequest` with what is wrong with it."""
    found = [name for name in MANIFESTS if name in snapshot.files]
    if not found:
        raise InvalidRequest(f"There is no {' or '.join(MANIFESTS)} in it.")
    if len(found) > 1:
        raise InvalidRequest(f"It has both {' and '.join(MANIFESTS)}. Keep one.")
    data = snapshot.files[found[0]]
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"{found[0]} has more than {MAX_BYTES:,} bytes.")
    try:
        manifest = msgspec.convert(_parse(found[0], data), type=Manifest)
    except msgspec.ValidationError as error:
        words, place = split_error(str(error))
        raise InvalidRequest(f"{found[0]}{f', {place}' if place else ''}: {words}.") from None
    _check(found[0], manifest, snapshot)
    return manifest


def check_fit(manifest: Manifest, profiles: Sequence[AgentRuntimeProfile]) -> None:
    """Raise `InvalidRequest` if an extension is not made for this core API or any of these runtimes."""
    wanted = manifest.runtime
    if wanted.core_api_version not in (None, CORE_API_VERSION):
        raise InvalidRequest(
            f"It needs the core API version {wanted.core_api_version}; this CodeSDK has {CORE_API_VERSION}."
        )
    span = wanted.core_api_version_range
    if span is not None and Version(CORE_API_VERSION, 0, 0) not in VersionRange(span):
        raise InvalidRequest(f"It needs a core API version in {span}; this CodeSDK has {CORE_API_VERSION}.")
    if wanted.profiles and not bound_to(manifest, profiles):
        needed = ", ".join(
            f"{one.name} {one.version or one.version_range or ''}".strip() for one in wanted.profiles
        )
        raise InvalidRequest(f"It is made for {needed}; this CodeSDK has no such runtime.")


def bound_to(manifest: Manifest, profiles: Sequence[AgentRuntimeProfile]) -> frozenset[str]:
    """Return the runtimes whose sessions an extension is told of, if it is bound to any."""
    return frozenset(
        profile.runtime_profile_id
        for profile in profiles
        if any(_fits(binding, profile) for binding in manifest.runtime.profiles)
    )


def _fits(binding: ProfileBinding, profile: AgentRuntimeProfile) -> bool:
    if binding.name != profile.runtime_profile_id:
        return False
    version = parse_version(profile.runtime_profile_version)
    if binding.version is not None:
        return parse_version(binding.version) == version
    return binding.version_range is None or version in VersionRange(binding.version_range)


def _parse(name: str, data: bytes) -> Any:
    try:
        text = data.decode()
        return tomllib.loads(text) if name.endswith(".toml") else msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name} cannot be read: {error or 'it is nested too deeply'}.") from None


def _check(source: str, manifest: Manifest, snapshot: Snapshot) -> None:
    """Check what the types do not say."""
    for field in ("name", "agent_id"):
        if not _NAME.fullmatch(getattr(manifest, field)):
            raise InvalidRequest(f"{source}, {field}: 1 to 40 of a-z, 0-9 and . _ - between them.")
    if not manifest.display_name.strip() or len(manifest.display_name) > 100:
        raise InvalidRequest(f"{source}, display_name: 1 to 100 characters.")
    runtime = manifest.runtime
    if (runtime.core_api_version is None) == (runtime.core_api_version_range is None):
        raise InvalidRequest(f"{source}, runtime: give core_api_version or core_api_version_range.")
    try:
        _check_versions(manifest)
    except ValueError as error:
        raise InvalidRequest(f"{source}: {error}") from None
    for binding in runtime.profiles:
        if binding.version is not None and binding.version_range is not None:
            raise InvalidRequest(f"{source}, runtime.profiles: {binding.name} has a version and a range.")
    file = manifest.entrypoints.events
    if not _FILE.fullmatch(file):
        raise InvalidRequest(f"{source}, entrypoints.events: a file of Python inside the extension.")
    if file not in snapshot.files:
        raise InvalidRequest(f"{source}, entrypoints.events: there is no file {file}.")


def _check_versions(manifest: Manifest) -> None:
    runtime = manifest.runtime
    parse_version(manifest.version)
    for text in [runtime.core_api_version_range, *(one.version_range for one in runtime.profiles)]:
        if text is not None:
            VersionRange(text)
    for one in runtime.profiles:
        if one.version is not None:
            parse_version(one.version)
