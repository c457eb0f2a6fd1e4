"""Programs of other versions: the real ones behind a wrapper that says another version, certified, allowed or refused."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.counts import COUNTS
from tests.daemon.rig import daemon

from codesdk import CodeSDK, SessionSettings
from codesdk.cli import certification as command
from codesdk.cli.app import run
from codesdk.cli.target.lookup import short
from codesdk.contract.entry import MARK
from codesdk.gateway.providers import ORIGINS, Provider
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.runtimes.claude import options as claude
from codesdk.runtimes.codex import adapter as codex
from codesdk.runtimes.program.certificates import OWNERSHIP_ROWS
from codesdk.runtimes.program.finding import Program
from codesdk.script import parse_object
from codesdk.testing import certification
from codesdk.testing.comparison import Comparison
from codesdk.testing.network import alone

Codesdk = Callable[..., tuple[int, str]]
ROWS = (*OWNERSHIP_ROWS, "artifacts", "no connection except loopback")
NEWER = {"codex": "9.163.0", "claude": "9.1.325"}
HELLO = {"turns": [{"steps": [{"text": "Hello."}]}], "loop": True}
NOTE = {
    "turns": [
        {
            "steps": [
                {"call": {"tool": "workspace.read", "input": {"path": "n.txt"}}},
                {"call": {"tool": "workspace.edit", "input": {"path": "n.txt", "old": "milk", "new": "tea"}}},
            ]
        },
        {"steps": [{"text": "Noted."}]},
    ]
}
FILTER = """\
#!{python}
import subprocess, sys
if "--version" in sys.argv:
    print("codex-cli 9.163.0")
    sys.exit()
inner = subprocess.Popen([{real!r}, *sys.argv[1:]], stdin=subprocess.PIPE)
for line in sys.stdin.buffer:
    inner.stdin.write(line.replace({before!r}, {after!r}))
    inner.stdin.flush()
inner.stdin.close()
sys.exit(inner.wait())
"""
"""A program of another version that is told something else than we say."""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    if not COUNTS.whole_matrix:
        monkeypatch.setattr(certification, "MATRIX", ROWS)
    with alone():
        yield


@pytest.fixture
def codesdk(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Codesdk:
    def call(*arguments: Any) -> tuple[int, str]:
        code = run(["--data-dir", str(tmp_path / "data"), *map(str, arguments)])
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    return call


def wrapper(folder: Path, name: str, first: str = ":") -> Path:
    """Write a program that says another version and is the real one otherwise."""
    real = (codex if name == "codex" else claude).bundled()
    assert real is not None
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) echo "{name} {NEWER[name]}"; exit;; esac\n'
        f'{first}\nexec {real.path} "$@"\n'
    )
    path.chmod(0o755)
    return path


def filtered(folder: Path, real: Program, before: bytes, after: bytes) -> Program:
    """Write a codex of another version that is told `after` wherever we say `before`."""
    path = folder / "filtered"
    path.write_text(FILTER.format(python=sys.executable, real=real.path, before=before, after=after))
    path.chmod(0o755)
    return Program(str(path), NEWER["codex"])


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A newer codex on the search path, and none in a package."""
    path = wrapper(tmp_path, "codex")
    monkeypatch.setattr(codex, "bundled", lambda: None)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    return path


def script(tmp_path: Path) -> Path:
    path = tmp_path / "hello.json"
    path.write_text(json.dumps(HELLO))
    return path


def workspace(tmp_path: Path) -> Path:
    """Make a workspace apart from the program: none is taken from inside it."""
    path = tmp_path / "workspace"
    path.mkdir(exist_ok=True)
    return path


def hello(codesdk: Codesdk, tmp_path: Path, *options: str) -> tuple[int, str]:
    """Say hello on codex."""
    given = ("--runtime", "codex", "--script", script(tmp_path), "--workspace", workspace(tmp_path))
    return codesdk("run", *given, *options, "Hello")


def payloads(codesdk: Codesdk, kind: str) -> list[Any]:
    """Return the payloads of the last session's events of a type."""
    _, out = codesdk("events", "last", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    found = [event["payload"] for event in events if event["type"] == kind]
    return [payload for payload in found if payload.get("kind") != "signal"]


def problem(codesdk: Codesdk) -> str:
    """Return why the last task failed."""
    [failed] = payloads(codesdk, "task.failed")
    assert failed["error"]["code"] == "RUNTIME_UNAVAILABLE"
    return failed["error"]["message"]


def test_another_version_is_refused_until_it_is_certified_and_again_when_a_file_changes(
    codesdk: Codesdk, newer: Path, tmp_path: Path
):
    assert hello(codesdk, tmp_path)[0] == 1
    assert problem(codesdk).startswith(
        f"The runtime codex-sdk cannot run: {newer} is version 9.163.0, and 0.163.0 is the one that was tested."
        " Check this version with: codesdk runtimes certify codex"
    )
    code, printed = codesdk("runtimes", "doctor", "codex")
    assert f"✗ program    untested: {newer} is version 9.163.0" in printed
    assert "→ Run: codesdk runtimes certify codex, or codesdk runtimes install codex." in printed

    assert f"untested: {newer} is version 9.163.0" in codesdk("runtimes", "list", "codex")[1]

    code, printed = codesdk("runtimes", "certify", "codex")
    assert code == 0, printed
    lines = printed.splitlines()
    assert lines[0] == f"codex-sdk: {newer}, version 9.163.0, untested"
    assert all(f"✓ {row}" in printed for row in (*OWNERSHIP_ROWS, "no connection except loopback"))
    assert "Certified: codex-sdk 9.163.0, for these files, CodeSDK " in printed
    assert "Not shown: artifacts (unsupported)." in lines
    [stored] = (tmp_path / "share" / "codesdk" / "certificates").glob("codex-sdk-*.json")
    assert lines[-1] == f"The certificate is {stored}"

    code, printed = hello(codesdk, tmp_path)
    assert code == 0, printed
    assert payloads(codesdk, "runtime.notice") == []
    assert "9.163.0 certified · " in codesdk("runtimes", "list", "codex")[1]
    assert f"✓ program    {newer}, version 9.163.0, certified" in codesdk("runtimes", "doctor", "codex")[1]

    with newer.open("a") as file:
        file.write("# one byte more\n")
    assert hello(codesdk, tmp_path)[0] == 1
    assert "is void: the program's files are others now" in problem(codesdk)


def test_an_untested_version_runs_where_the_operator_allows_it_and_the_log_says_so(
    codesdk: Codesdk, newer: Path, tmp_path: Path
):
    code, printed = hello(codesdk, tmp_path, "--allow-untested")
    assert code == 0, printed
    assert "untested: The operator allows an untested program" in " ".join(printed.split())
    [notice] = payloads(codesdk, "runtime.notice")
    assert (notice["kind"], notice["details"]) == (
        "untested",
        {"version": "9.163.0", "tested_version": "0.163.0"},
    )


def test_a_program_that_runs_tools_of_its_own_is_not_certified(
    codesdk: Codesdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is the package's, as if a newer one had been installed."""
    monkeypatch.setattr(certification, "MATRIX", OWNERSHIP_ROWS[-1:])
    wicked = wrapper(tmp_path, "codex", f'touch "{MARK}"')
    monkeypatch.setattr(codex, "bundled", lambda: Program(str(wicked), "9.163.0"))
    code, printed = codesdk("runtimes", "certify", "codex", "--json")
    assert code == 1
    row, verdict = map(json.loads, printed.splitlines())
    assert (row["name"], row["outcome"]) == (OWNERSHIP_ROWS[-1], "fail")
    assert "no tool of the program's own ran" in row["detail"]
    assert verdict == {
        "runtime": "codex-sdk",
        "version": "9.163.0",
        "state": "untested",
        "problem": "1 row failed: native tool attempt does not run",
        "certificate": None,
        "unchecked": [],
        "sessions": {},
    }
    assert not list(tmp_path.glob("share/codesdk/certificates/codex-sdk-*"))


async def passed(make: Any, rows: Iterable[str]) -> AsyncGenerator[certification.Cell]:
    for row in rows:
        yield certification.Cell(row, "pass")


async def failed(make: Any, rows: Iterable[str]) -> AsyncGenerator[certification.Cell]:
    for row in rows:
        yield certification.Cell(row, "fail", "so it was")


def test_what_fails_later_loses_its_certificate(
    codesdk: Codesdk, newer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(certification, "check_rows", passed)
    assert codesdk("runtimes", "certify", "codex")[0] == 0
    monkeypatch.setattr(certification, "check_rows", failed)
    code, printed = codesdk("runtimes", "certify", "codex")
    assert code == 1
    assert "An older certificate for these files was taken back." in printed
    assert not list((tmp_path / "share" / "codesdk" / "certificates").glob("codex-sdk-*"))


def test_a_program_that_is_replaced_while_it_is_checked_is_not_certified(
    codesdk: Codesdk, newer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def replaced(make: Any, rows: Iterable[str]) -> AsyncGenerator[certification.Cell]:
        with newer.open("a") as file:
            file.write("#\n")
        async for cell in passed(make, rows):
            yield cell

    monkeypatch.setattr(certification, "check_rows", replaced)
    code, printed = codesdk("runtimes", "certify", "codex")
    assert code != 0
    assert "changed while it was checked. Certify it again." in " ".join(printed.split())
    assert not list(tmp_path.glob("share/codesdk/certificates/codex-sdk-*"))


def test_claude_is_certified_by_the_same_means(
    codesdk: Codesdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, check_rows = wrapper(tmp_path, "claude"), certification.check_rows

    async def check_some(make: Any, rows: Iterable[str]) -> AsyncGenerator[certification.Cell]:
        played = [row for row in rows if COUNTS.whole_matrix or row == OWNERSHIP_ROWS[-1]]
        async for cell in check_rows(make, played):
            yield cell
        async for cell in passed(make, [row for row in rows if row not in played]):
            yield cell

    monkeypatch.setattr(certification, "check_rows", check_some)
    monkeypatch.setattr(claude, "bundled", lambda: Program(str(path), NEWER["claude"]))
    code, printed = codesdk("runtimes", "certify", "claude", "--json")
    assert code == 0, printed
    assert json.loads(printed.splitlines()[-1])["state"] == "certified"


def test_the_tested_version_and_what_comes_with_codesdk_need_no_certificate(codesdk: Codesdk):
    code, printed = codesdk("runtimes", "certify", "codex")
    assert (code, printed.splitlines()[-1]) == (0, "This is the tested version: it needs no certificate.")
    code, printed = codesdk("runtimes", "certify", "scripted")
    assert code == 2
    assert "there is nothing to" in printed


# --- sessions that were recorded ------------------------------------------------------------------------------


async def record(data: Path, workspace: Path) -> str:
    """Record a session on the tested codex: one call is allowed, one denied."""
    async with Gateway() as provider:
        url = provider.admit(ScriptedModel(parse_object(NOTE, "script")))
        async with CodeSDK.open(data, providers={wire: Provider(origin=url) for wire in ORIGINS}) as sdk:
            session = await sdk.create_session(
                runtime="codex",
                workspace=workspace,
                permission_mode="auto",
                settings=SessionSettings(gateway="record"),
            )
            task = await session.start("Note that I want tea.")
            async for event in task.events():
                if event.type == "approval.requested":
                    await task.deny(event.payload.tool_call_id or "", "There is none left.")
            assert (await task.result()).text == "Noted."
            return session.id


def test_a_recorded_session_is_played_on_the_new_version_and_what_changed_is_shown(
    codesdk: Codesdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    note = workspace(tmp_path) / "n.txt"
    note.write_text("milk\n")
    real = codex.bundled()
    assert real is not None
    session_id = asyncio.run(record(tmp_path / "data", note.parent))
    note.unlink()  # tools answer from the log
    monkeypatch.setattr(certification, "check_rows", passed)

    same = wrapper(tmp_path, "codex")
    monkeypatch.setattr(codex, "bundled", lambda: Program(str(same), "9.163.0"))
    code, printed = codesdk("runtimes", "certify", "codex", "--against", session_id)
    assert code == 0, printed
    assert "1 task\n    inputs: unchanged\n    calls: unchanged\n    decisions: unchanged\n" in printed

    changing = filtered(tmp_path, real, b"Note that I want", b"Hear, hear. Note that I want")
    monkeypatch.setattr(codex, "bundled", lambda: changing)
    code, printed = codesdk("runtimes", "certify", "codex", "--against", session_id)
    assert code == 0, printed
    assert "inputs: 2 changed" in printed
    assert "request 1 (main), recorded as 1:" in printed
    assert '- "Note that I want tea."' in printed
    assert '+ "Hear, hear. Note that I want tea."' in printed
    assert "calls: unchanged" in printed


def test_a_version_that_makes_other_calls_than_were_recorded_is_not_certified(
    codesdk: Codesdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (workspace(tmp_path) / "n.txt").write_text("milk\n")
    real = codex.bundled()
    assert real is not None
    session_id = asyncio.run(record(tmp_path / "data", workspace(tmp_path)))
    monkeypatch.setattr(certification, "check_rows", passed)
    # It offers its model one of our tools less, so that the recorded model asks for it in vain.
    shy = filtered(tmp_path, real, b'"required":true', b'"required":true,"disabled_tools":["workspace_edit"]')
    monkeypatch.setattr(codex, "bundled", lambda: shy)
    code, printed = codesdk("runtimes", "certify", "codex", "--against", session_id)
    assert code == 1
    assert "    calls: 1 changed\n      - workspace.edit {" in printed
    assert f"Not certified: it does something else than recorded in {short(session_id)}." in printed
    assert not list(tmp_path.glob("share/codesdk/certificates/codex-sdk-*"))


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"calls": ["+ workspace.read {}"]}, "calls: 1 changed\n      + workspace.read {}\n"),
        (
            {"decisions": ["workspace.edit: denied then, approved now"]},
            "decisions: 1 changed\n      workspace.edit: denied then, approved now\n",
        ),
        ({"problem": "the task failed: No."}, "problem: the task failed: No.\n"),
    ],
    ids=["calls", "decisions", "problem"],
)
def test_what_came_out_differently_takes_a_certificate_back_and_is_named(
    codesdk: Codesdk,
    newer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    shown: str,
):
    async def create() -> str:
        async with CodeSDK.open(tmp_path / "data") as sdk:
            return (await sdk.create_session(runtime="codex", workspace=workspace(tmp_path))).id

    async def read(archive: Any, session_id: str) -> Any:
        return SimpleNamespace(session_id=session_id)

    async def compare(runtime: Any, recording: Any) -> Comparison:
        same: dict[str, Any] = {"tasks": 1, "left_out": 0, "inputs": [], "calls": [], "decisions": []}
        return Comparison(**{"session_id": recording.session_id} | same | changed)

    session_id = asyncio.run(create())
    monkeypatch.setattr(certification, "check_rows", passed)
    assert codesdk("runtimes", "certify", "codex")[0] == 0
    certificates = tmp_path / "share" / "codesdk" / "certificates"
    assert len(list(certificates.glob("codex-sdk-*"))) == 1

    monkeypatch.setattr(command, "read_recording", read)
    monkeypatch.setattr(command, "compare", compare)
    code, printed = codesdk("runtimes", "certify", "codex", "--against", session_id)
    assert code == 1
    assert shown in printed
    assert printed.splitlines()[-1] == (
        f"Not certified: it does something else than recorded in {short(session_id)}. An older certificate for these"
        " files was taken back. Install the tested version with: pip install 'codesdk[codex]'"
    )
    assert list(certificates.glob("codex-sdk-*")) == []
    code, printed = codesdk("runtimes", "certify", "codex", "--against", session_id, "--json")
    verdict = json.loads(printed.splitlines()[-1])
    assert (code, verdict["state"], verdict["certificate"]) == (1, "untested", None)
    assert verdict["sessions"] == {session_id: False}


def test_only_a_recorded_session_of_the_same_runtime_can_be_played(codesdk: Codesdk, tmp_path: Path):
    given = ("--runtime=scripted", "--script", script(tmp_path), "--workspace", workspace(tmp_path))
    assert codesdk("run", *given, "Hello")[0] == 0
    code, printed = codesdk("runtimes", "certify", "codex", "--against", "last")
    assert code == 2
    assert "is of scripted, not codex-sdk." in printed


# --- daemons --------------------------------------------------------------------------------------------------

NEWER_DAEMON = """
from codesdk.cli.codesdkd import main
from codesdk.runtimes.codex import adapter
adapter.bundled = lambda: None
main()
"""
"""A daemon without a codex in a package."""


@pytest.mark.parametrize("options", [(), ("--allow-untested",)])
def test_a_daemon_allows_an_untested_version_if_its_operator_does_and_no_client_certifies(
    newer: Path, tmp_path: Path, options: tuple[str, ...]
):
    env = {name: os.environ[name] for name in ("PATH", "XDG_DATA_HOME", "HOME") if name in os.environ}
    with daemon(tmp_path / "data", *options, env=env, program=("-c", NEWER_DAEMON)) as served:
        fields: dict[str, Any] = {"runtime": "codex", "script": HELLO, "settings": {"gateway": "scripted"}}
        body = {"workspace": str(workspace(tmp_path)), **fields}
        session = served.post("/v1/sessions", body)["session_id"]
        served.run(session)
        events = served.get(f"/v1/sessions/{session}/events")["events"]
        notices = [event["payload"]["kind"] for event in events if event["type"] == "runtime.notice"]
        asked = subprocess.run(
            [sys.executable, "-m", "codesdk.cli.main", "--url", served.url, "runtimes", "certify", "codex"],
            capture_output=True,
            text=True,
            check=False,
        )
    ending = events[-1]
    if options:
        assert ending["type"] == "task.completed"
        assert "untested" in notices
    else:
        assert ending["payload"]["error"]["code"] == "RUNTIME_UNAVAILABLE"
        assert "codesdk runtimes certify codex" in ending["payload"]["error"]["message"]
    assert asked.returncode == 2
    assert "A program is certified where it runs, by whoever operates it" in asked.stderr
