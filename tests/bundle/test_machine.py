"""What a bundle says of programs that CodeSDK installed itself."""

import msgspec
import pytest

from codesdk.bundle.machine import _package
from codesdk.runtimes import lock_hash
from codesdk.runtimes.program.pinned import GEMINI, MISTRAL_VIBE


@pytest.mark.parametrize("program", [GEMINI, MISTRAL_VIBE], ids=["npm", "pypi"])
def test_the_installed_version_and_the_lock_are_told(program, monkeypatch: pytest.MonkeyPatch, tmp_path):
    lock = lock_hash(program.source.lock)
    known = {"package": program.source.name, "lock": lock}
    assert _package(program) == {**known, "package_version": program.version}
    monkeypatch.setenv("CODESDK_PROGRAMS", str(tmp_path))
    assert _package(program) == {**known, "package_version": None}
    monkeypatch.setenv("CODESDK_PROGRAMS", "somewhere")
    assert _package(program) == {**known, "package_version": None}
    newer = msgspec.structs.replace(program, version="99.0.0")
    monkeypatch.undo()
    assert _package(newer)["package_version"] is None
