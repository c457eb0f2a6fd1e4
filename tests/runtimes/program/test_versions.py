"""Finding the program that a runtime drives."""

from pathlib import Path

import pytest

from codesdk.contract.errors import TaskFailure
from codesdk.runtimes.program.versions import Pin, Program, find_program

PIN = Pin(
    runtime="some-runtime",
    program="someprogram",
    package="no-such-package",
    version="1.2.3",
    install="pip install it",
)


def none() -> Path:
    raise ImportError


def program(folder: Path, says: str) -> str:
    path = folder / "someprogram"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return str(path)


async def problem(given: str | None = None) -> str:
    with pytest.raises(TaskFailure) as raised:
        await find_program(PIN, none, given)
    assert raised.value.code == "RUNTIME_UNAVAILABLE"
    assert raised.value.details == {"wanted": "1.2.3", "install": "pip install it"}
    return raised.value.message.replace(str(given), "PATH")


async def test_a_program_on_the_search_path_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = program(tmp_path, 'echo "someprogram 1.2.3 (abc)"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert await find_program(PIN, none) == Program(path, "1.2.3")


async def test_a_package_that_brings_the_program_says_its_version():
    pin = Pin(
        runtime="r", program="x", package="pytest", version=pytest.__version__, install="pip install it"
    )
    assert await find_program(pin, lambda: Path("/bundled")) == Program("/bundled", pytest.__version__)


async def test_a_program_that_is_nowhere_is_named_with_what_installs_it():
    assert await problem() == (
        "The runtime some-runtime cannot run: the program someprogram is not installed."
        " Install it with: pip install it"
    )


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("echo 2.0.0", "PATH is version 2.0.0, and 1.2.3 is the one that was tested"),
        ("echo hello", "PATH does not say its version, so it is not the program"),
        ("exit 1", "PATH does not say its version, so it is not the program"),
    ],
)
async def test_another_version_is_refused(tmp_path: Path, says: str, expected: str):
    told = await problem(program(tmp_path, says))
    assert told == f"The runtime some-runtime cannot run: {expected}. Install it with: pip install it"


async def test_a_given_program_that_is_not_there_is_named():
    assert "there is no program at PATH" in await problem("/no/such")


async def test_a_program_is_asked_without_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_OURS", "9.9.9")
    told = await problem(program(tmp_path, 'echo "[$SECRET_OF_OURS] 4.5.6"'))
    assert "4.5.6" in told
