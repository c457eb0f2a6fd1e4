"""Finding the program that a runtime drives."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from codesdk.contract.entry import ProgramEntry, PythonPackage, RuntimeEntry
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.payloads import RuntimeNotice
from codesdk.runtimes.program.finding import (
    Program,
    find_program,
    install_command,
    notices_about,
    told_by,
)

PROGRAM = ProgramEntry(
    command="someprogram",
    version="1.2.3",
    source=PythonPackage(name="no-such-package", extra="some", bundled=f"{__name__}:nowhere"),
)
ENTRY = RuntimeEntry(name="some-runtime", adapter="some.where:Else", program=PROGRAM)
INSTALL = "pip install 'codesdk[some]'"


def nowhere() -> Program | None:
    return None


def in_a_package() -> Program | None:
    return Program("/bundled", "1.2.3")


def older_in_a_package() -> Program | None:
    return Program("/bundled", "1.2.2")


def with_package(function: str) -> RuntimeEntry:
    source = PythonPackage(name="no-such-package", extra="some", bundled=f"{__name__}:{function}")
    program = msgspec.structs.replace(PROGRAM, source=source)
    return msgspec.structs.replace(ENTRY, program=program)


def program(folder: Path, says: str) -> str:
    path = folder / "someprogram"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return str(path)


async def problem(given: str | None = None, entry: RuntimeEntry = ENTRY) -> str:
    with pytest.raises(TaskFailure) as raised:
        await find_program(entry, given)
    assert raised.value.code == "RUNTIME_UNAVAILABLE"
    details = raised.value.details or {}
    assert (details["wanted"], details["install"]) == ("1.2.3", INSTALL)
    return raised.value.message.replace(str(given), "PATH")


async def test_a_program_on_the_search_path_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = program(tmp_path, 'echo "someprogram 1.2.3 (abc)"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert await find_program(ENTRY) == Program(path, "1.2.3")


async def test_a_package_that_brings_the_program_says_its_version():
    assert await find_program(with_package("in_a_package")) == Program("/bundled", "1.2.3")


async def test_a_package_of_another_version_is_refused():
    told = await problem(entry=with_package("older_in_a_package"))
    assert "/bundled is version 1.2.2, and 1.2.3 is the one that was tested" in told


async def test_a_program_that_is_nowhere_is_named_with_what_installs_it():
    assert await problem() == (
        "The runtime some-runtime cannot run: the program someprogram is not installed."
        f" Install it with: {INSTALL}"
    )


async def test_another_version_is_refused_with_all_that_can_be_done_about_it(tmp_path: Path):
    assert await problem(program(tmp_path, "echo 2.0.0")) == (
        "The runtime some-runtime cannot run: PATH is version 2.0.0, and 1.2.3 is the one that was tested."
        " Check this version with: codesdk runtimes certify some-runtime"
        f" - or install the tested one with: {INSTALL}"
        " - or allow it unchecked: --allow-untested, CodeSDK.open(allow_untested=True)."
    )


@pytest.mark.parametrize("version", ["1.2.3-alpha.1", "1.2.3+patched", "1.2.30"])
async def test_a_version_that_only_begins_like_the_tested_one_is_another(tmp_path: Path, version: str):
    told = await problem(program(tmp_path, f"echo 'someprogram {version} (abc)'"))
    assert f"PATH is version {version}, and 1.2.3 is the one that was tested." in told


async def test_another_version_may_be_allowed_and_the_log_is_told(tmp_path: Path):
    path = program(tmp_path, "echo 2.0.0")
    found = await find_program(ENTRY, path, allow_untested=True)
    doubt = f"{path} is version 2.0.0, and 1.2.3 is the one that was tested."
    assert found == Program(path, "2.0.0", "untested", doubt)
    [notice] = notices_about(ENTRY, found)
    assert notice.payload == RuntimeNotice(
        kind="untested",
        message=f"The operator allows an untested program: {doubt}"
        " Certify it with: codesdk runtimes certify some-runtime",
        details={"version": "2.0.0", "tested_version": "1.2.3"},
    )
    assert notices_about(ENTRY, Program(path, "1.2.3")) == []


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("echo hello", "PATH does not say its version, so it is not the program"),
        ("exit 1", "PATH does not say its version, so it is not the program"),
    ],
)
async def test_a_program_that_does_not_say_its_version_is_refused(tmp_path: Path, says: str, expected: str):
    told = await problem(program(tmp_path, says))
    assert told == f"The runtime some-runtime cannot run: {expected}. Install it with: {INSTALL}"


async def test_a_given_program_that_is_not_there_is_named():
    assert "there is no program at PATH" in await problem("/no/such")


async def test_a_program_is_asked_without_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_OURS", "9.9.9")
    told = await problem(program(tmp_path, 'echo "[$SECRET_OF_OURS] 4.5.6"'))
    assert "4.5.6" in told


def test_a_runtime_without_a_program_has_nothing_to_install():
    with pytest.raises(InvalidRequest) as raised:
        install_command(msgspec.structs.replace(ENTRY, program=None))
    assert raised.value.message == (
        "The runtime some-runtime comes with CodeSDK: there is nothing to install."
    )


async def test_a_program_that_writes_without_end_says_nothing_and_is_ended(tmp_path: Path):
    assert await told_by(program(tmp_path, "exec yes 1.2.3"), timeout_s=60) == b""


async def test_what_a_program_starts_ends_with_it(tmp_path: Path):
    """Its child would go on for an hour; the program itself is ended for what it writes."""
    pid = tmp_path / "pid"
    start = f"sh -c 'echo $$ >{pid}; exec sleep 3600' & while [ ! -s {pid} ]; do sleep 0.01; done"
    assert await told_by(program(tmp_path, f"{start}; exec yes"), timeout_s=60) == b""
    child = int(pid.read_text())
    async with asyncio.timeout(20):
        while _runs(child):  # noqa: ASYNC110 - of the system
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
