"""Certifying a program of npm: the real files of gemini, as another version on the search path.

The rows are not played here, which needs its runtime; what is shown is which files a certificate is for.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_certify import passed
from tests.runtimes.program.pinned.other import other_version, replace_file

from codesdk.cli.app import run
from codesdk.contract.access import Availability
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes import registry
from codesdk.runtimes.program.access import availability
from codesdk.runtimes.program.certificates import OWNERSHIP_ROWS
from codesdk.runtimes.program.finding import find_program
from codesdk.runtimes.program.pinned import GEMINI
from codesdk.testing import certification
from codesdk.testing.fakes import FakeRuntime

ENTRY = RuntimeEntry(name="gemini-like", alias="like", adapter=f"{__name__}:Like", program=GEMINI)
Codesdk = Callable[..., tuple[int, str]]


class Like(FakeRuntime):
    def __init__(self, program: str | None = None) -> None:
        super().__init__(name="gemini-like")

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return await availability(ENTRY, find_program(ENTRY, allow_untested=True), env)


@pytest.fixture
def codesdk(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Codesdk:
    """The command line, with a runtime for gemini, whose version on the search path is 9.9.9."""
    monkeypatch.setattr(registry, "RUNTIMES", (__name__, "codesdk.runtimes.scripted"))
    monkeypatch.setattr(certification, "MATRIX", OWNERSHIP_ROWS)
    monkeypatch.setattr(certification, "check_rows", passed)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("PATH", str(other_version("gemini", "9.9.9", tmp_path / "npm")), prepend=os.pathsep)
    monkeypatch.setenv("CODESDK_PROGRAMS", str(tmp_path / "programs"))

    def call(*arguments: Any) -> tuple[int, str]:
        code = run(["--data-dir", str(tmp_path / "data"), "runtimes", *map(str, arguments)])
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    return call


def doctor(codesdk: Codesdk) -> dict[str, Any]:
    return json.loads(codesdk("doctor", "like", "--json")[1])["findings"][0]


@pytest.mark.slow
def test_a_program_of_npm_is_certified_with_all_that_it_needs(codesdk: Codesdk, tmp_path: Path):
    path = tmp_path / "npm" / "bin" / "gemini"
    assert doctor(codesdk) == {
        "check": "program",
        "state": "failed",
        "found": f"untested: {path} is version 9.9.9, and {GEMINI.version} is the one that was tested.",
        "to_do": "Run: codesdk runtimes certify like, or codesdk runtimes install gemini.",
    }
    code, said = codesdk("certify", "like")
    assert code == 0, said
    assert "Certified: gemini-like 9.9.9, for these files" in said
    assert doctor(codesdk)["found"] == f"{path}, version 9.9.9, certified"
    # Beside the package, not in it: node finds it there.
    beside = tmp_path / "npm" / "lib" / "node_modules" / "@lydell" / "node-pty" / "package.json"
    replace_file(beside, beside.read_text() + "\n")
    assert "void: the program's files are others now" in doctor(codesdk)["found"]


def test_a_program_that_is_nowhere_is_installed_by_its_own_name(codesdk: Codesdk, tmp_path: Path):
    (tmp_path / "npm" / "bin" / "gemini").unlink()
    assert doctor(codesdk) == {
        "check": "program",
        "state": "failed",
        "found": "The runtime gemini-like cannot run: the program gemini is not installed.",
        "to_do": "Run: codesdk runtimes install gemini.",
    }
