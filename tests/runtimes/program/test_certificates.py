"""Certificates of programs: what makes one, what it is good for, and everything that makes it void."""

import json
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtimes.program.test_finding import ENTRY, PROGRAM, program

from codesdk.contract.canonical import hash_json
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import TaskFailure
from codesdk.runtimes import acp
from codesdk.runtimes.program import certificates
from codesdk.runtimes.program.certificates import (
    OWNERSHIP_ROWS,
    Certificate,
    Row,
    adapter_version,
    certificate_folder,
    codesdk_version,
    problem_of,
    program_tree,
    store_certificate,
    withdraw_certificate,
)
from codesdk.runtimes.program.finding import find_program
from codesdk.runtimes.registry import entries

RUNTIMES = Path(acp.__file__).parents[1]

PASSED = (*(Row(name, "pass") for name in OWNERSHIP_ROWS), Row("streaming", "pass"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share" / "codesdk" / "certificates"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A program of version 2.0.0."""
    return program(tmp_path, "echo 2.0.0")


def certificate(path: str, **other: Any) -> Certificate:
    made = Certificate(
        runtime=ENTRY.name,
        version="2.0.0",
        tree=program_tree(PROGRAM, path),
        codesdk=codesdk_version(),
        adapter=adapter_version(ENTRY),
        made_at="2026-11-17T00:00:00.000Z",
        rows=PASSED,
    )
    return msgspec.structs.replace(made, **other)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def state(path: str) -> str:
    return (await find_program(ENTRY, path, allow_untested=True)).state


async def doubt(path: str) -> str:
    with pytest.raises(TaskFailure) as raised:
        await find_program(ENTRY, path)
    return raised.value.message.partition(", but ")[2].partition(". Check this version with: ")[0]


async def test_a_certified_program_runs_without_a_word(path: str, home: Path):
    assert await doubt(path) == ""
    stored = store_certificate(certificate(path))
    assert await state(path) == "certified"
    assert (await find_program(ENTRY, path)).version == "2.0.0"
    assert (stored.parent, mode(stored), mode(home)) == (home, 0o600, 0o700)


async def test_the_same_files_are_certified_wherever_they_are(path: str, tmp_path: Path):
    store_certificate(certificate(path))
    copy = shutil.copy(path, tmp_path / "elsewhere")
    assert await state(str(copy)) == "certified"


async def test_another_file_is_not_certified_even_if_it_says_the_same_version(path: str, tmp_path: Path):
    store_certificate(certificate(path))
    program(tmp_path, "echo 2.0.0 # really")
    assert await doubt(path) == (
        "its certificate of 2026-11-17T00:00:00.000Z is void: the program's files are others now"
    )


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"codesdk": "0.0.0"}, f"it was made with CodeSDK 0.0.0, and this is {codesdk_version()}"),
        ({"adapter": "sha256:0"}, "the adapter has changed since"),
        ({"runtime": "other"}, "the program's files are others now"),
        ({"rows": (*PASSED, Row("steer", "fail"))}, "1 row failed: steer"),
        ({"rows": PASSED[1:]}, "who decides about tools was not shown: tool approve"),
    ],
)
async def test_a_certificate_is_void_when_anything_else_has_changed(
    path: str, home: Path, other: dict[str, Any], why: str
):
    stored = store_certificate(certificate(path, **other))
    stored.rename(home / f"{ENTRY.name}-x.json")
    assert (await doubt(path)).endswith(f" is void: {why}")


def edited(text: str) -> str:
    plain = json.loads(text)
    plain["certificate"]["rows"][0]["outcome"] = "not-checked"
    return json.dumps(plain)


def rehashed(text: str) -> str:
    """By somebody who knows how the hash is made: what it says is still looked at."""
    plain = json.loads(edited(text))
    plain["hash"] = hash_json(plain["certificate"])
    return json.dumps(plain)


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (edited, "it was changed after it was made"),
        (rehashed, "who decides about tools was not shown: tool approve"),
        (lambda text: text[:-9], "it cannot be read"),
        (lambda text: "[]", "it cannot be read"),
        (lambda text: "", "it cannot be read"),
    ],
)
async def test_a_certificate_that_somebody_changed_is_not_believed(path: str, tamper: Any, why: str):
    stored = store_certificate(certificate(path))
    stored.write_text(tamper(stored.read_text()))
    assert why in await doubt(path)


async def test_a_certificate_that_others_may_write_is_not_believed(path: str):
    stored = store_certificate(certificate(path))
    stored.chmod(0o666)
    assert "others than you may write to it" in await doubt(path)
    stored.chmod(0o600)
    stored.parent.chmod(0o777)
    assert "others than you may write to it" in await doubt(path)


async def test_a_damaged_certificate_does_not_hide_a_good_one(path: str, home: Path):
    store_certificate(certificate(path))
    (home / f"{ENTRY.name}-damaged.json").write_text("{")
    assert await state(path) == "certified"


async def test_a_withdrawn_certificate_is_gone(path: str):
    made = certificate(path)
    store_certificate(made)
    assert withdraw_certificate(made.runtime, made.tree)
    assert not withdraw_certificate(made.runtime, made.tree)
    assert await doubt(path) == ""


async def test_without_certificates_nothing_is_hashed(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(certificates, "program_tree", None)
    assert await state(path) == "untested"


def test_what_was_not_shown_is_listed(path: str):
    unknown = Row("no connection except loopback", "not-checked", "only root can do that")
    assert problem_of((*PASSED, unknown)) is None
    assert certificate(path, rows=(*PASSED, unknown)).unchecked == [unknown]


def test_no_certificate_comes_from_a_relative_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_DATA_HOME", "share")
    assert certificate_folder() == Path.home() / ".local/share/codesdk/certificates"


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuntimeEntry:
    """A runtime whose adapter builds on another package; its version is worked out whenever it is asked for."""
    for package, module in (("someadapter", "adapter"), ("somebase", "protocol")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / f"{module}.py").write_text("VERSION = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(certificates, "_version", certificates._version.__wrapped__)
    return msgspec.structs.replace(
        ENTRY, adapter="someadapter.adapter:Agent", builds_on=("somebase.protocol",)
    )


def test_an_adapter_that_changes_or_what_it_builds_on_has_another_version(
    tmp_path: Path, changing: RuntimeEntry
):
    versions = [adapter_version(changing)]
    assert versions == [adapter_version(changing)]
    for changed in ("someadapter/adapter.py", "someadapter/__init__.py", "somebase/protocol.py"):
        (tmp_path / changed).write_text("VERSION = 2\n")
        versions.append(adapter_version(changing))
    assert len(set(versions)) == 4


def test_an_adapter_that_is_not_there_has_a_version(changing: RuntimeEntry):
    gone = msgspec.structs.replace(changing, adapter="no.such.adapter:Agent", builds_on=("no.such",))
    assert adapter_version(gone) == adapter_version(gone)


def row_file(agent: str) -> Path:
    """Return the file that has the row of an agent of the Agent Client Protocol."""
    for path in (RUNTIMES / "acp" / "known").glob("[!_]*.py"):
        found = vars(import_module(f"codesdk.runtimes.acp.known.{path.stem}")).values()
        if agent in [known.row.name for known in found if isinstance(known, acp.Known)]:
            return path
    raise AssertionError(f"no file has the row of {agent}")


def rooms_in(*files: Path) -> set[str]:
    """Return the packages of runtimes that files take something from."""
    text = "\n".join(file.read_text() for file in files)
    found = {name for name in re.findall(r"codesdk\.runtimes\.(\w+)", text) if (RUNTIMES / name).is_dir()}
    return {f"codesdk.runtimes.{name}" for name in found}


@pytest.mark.parametrize("name", [name for name, entry in entries().items() if entry.program is not None])
def test_an_entry_names_all_that_its_adapter_is_made_of(name: str):
    """Else a change there would leave certificates as they are."""
    entry = entries()[name]
    package = entry.adapter.partition(":")[0].rpartition(".")[0]
    folder = RUNTIMES / package.rpartition(".")[2]
    if (
        package == "codesdk.runtimes.acp"
    ):  # what the row of one agent takes from elsewhere is not for the others
        used = rooms_in(*folder.glob("*.py"), row_file(entry.arguments["agent"]))
    else:
        used = rooms_in(*folder.rglob("*.py"))
    assert used - {package, "codesdk.runtimes.program"} == set(entry.builds_on)
