"""What the page on extensions shows is what happens, and all that there is to subscribe to and to set is on it."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import Shell
from tests.extensions.rig import Extensions, extended, session_in

from codesdk.contract import jobs
from codesdk.engine.sessions import supplements
from codesdk.extensions import ExtensionOptions, Manifest, app_server, registry, running, suggestions
from codesdk.extensions.signals import SOURCES

PAGE = (Path(__file__).parents[2] / "docs" / "extensions.md").read_text()


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "night-shift").mkdir()
    (tmp_path / "night-shift" / "extension.toml").write_text(block("toml"))
    (tmp_path / "night-shift" / "events.py").write_text(block("python", 0))
    return tmp_path


def test_the_program_prints_what_the_page_says(home: Path):
    done = subprocess.run(
        [sys.executable, "-c", block("python", 1)],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", block("text"))


def test_the_program_with_a_job_prints_what_the_page_says(tmp_path: Path):
    (tmp_path / "digest").mkdir()
    (tmp_path / "digest" / "extension.toml").write_text(block("toml", 1))
    (tmp_path / "digest" / "events.py").write_text(block("python", 4))
    done = subprocess.run(
        [sys.executable, "-c", block("python", 5)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, block("text", 1)), done.stderr
    assert (tmp_path / "digest.txt").read_text().endswith(" completed\n")


def test_the_bounds_of_jobs_are_those_of_the_code():
    for words in (
        f"at most {jobs.MAX_PAYLOAD_BYTES // 1024} KiB",
        f"newest {jobs.KEEP_FINISHED:,} are kept",
        f"at most {jobs.MAX_WAITING:,} may be queued",
        f"up to {jobs.LONGEST_PAUSE_MS // 60_000} minutes",
        f"At most {running.AT_ONCE} jobs run at once, {running.EACH} of one extension",
        f"timeout_ms={registry.DEFAULT_JOB_TIMEOUT_MS:_}, attempts={registry.DEFAULT_ATTEMPTS},"
        f" backoff_ms={registry.DEFAULT_BACKOFF_MS})",
        f"(at most {registry.MAX_JOB_TIMEOUT_MS // 60_000} minutes)",
    ):
        assert words in PAGE


def test_the_command_prints_what_the_page_says(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home)
    command, _, output = block("console").partition("\n")
    ran = Shell(home).codesdk(*command.removeprefix("$ codesdk ").split())
    assert (ran.code, ran.err, ran.out) == (0, "", output.replace("{home}", str(home)))


async def test_an_application_gets_the_suggestions_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ext = Extensions(tmp_path / "extensions")
    ext.write("tester", block("python", 2), events=["suggest_request.requested"])
    asks = "async def asks(session):\n" + textwrap.indent(block("python", 3), "    ")
    found: dict[str, Any] = {}
    exec(asks, found)
    async with extended(ext, tmp_path) as sdk:
        await found["asks"](await session_in(sdk, tmp_path))
    assert capsys.readouterr().out == "tester {'message': 'Write tests for the parser.'}\n"


def test_the_bounds_are_those_of_the_code():
    assert f"{app_server.MAX_WAITING:,} messages of a" in PAGE
    assert f"{app_server.MAX_WAITING_BYTES // 2**20} MiB of all" in PAGE
    assert f"One result may have {suggestions.MAX_OUTCOME_BYTES // 1024} KiB." in PAGE
    assert f"Up to {supplements.MAX_BYTES // 1024} KiB; no model" in PAGE


def test_every_field_and_option_is_on_the_page():
    fields = [
        name for name in Manifest.__struct_fields__ if name not in ("runtime", "entrypoints", "capabilities")
    ]
    named = [f"`{name}`" for name in [*fields, *ExtensionOptions.__struct_fields__] if name != "actions"]
    assert [name for name in [*named, *(f"`{name}`" for name in SOURCES)] if name not in PAGE] == []
