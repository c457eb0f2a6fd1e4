"""A process swaps a directory for a link to the outside as fast as it can; no file tool ever gets there.

The way that looks right, resolving the path and then opening it, does get there: the race is a real one.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.counts import COUNTS
from tests.sandbox.traps import SECRET, tree

from codesdk.contract.ports import ToolInvocation
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.files import paths
from codesdk.sandbox.files.batch import Batch
from codesdk.sandbox.files.kernel import Unsupported
from codesdk.sandbox.files.paths import Beneath, PathRefused
from codesdk.sandbox.files.tree import entries
from codesdk.tools import builtin_registry

READS = 20_000 * COUNTS.races
LISTS = 5_000 * COUNTS.races
WRITES = 4_000 * COUNTS.races
CALLS = 1_000 * COUNTS.races
NAIVE_AT_MOST = 400_000

SWAP = """
import ctypes, sys
renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
print(flush=True)
while True:
    for _ in range(1000):
        renameat2(-100, b"swap", -100, b"other", 2)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace in which `swap` is a directory half of the time, and a link to the outside the other half."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # what survives a power cut is not the question here
    outside, root = tmp_path / "outside", tmp_path / "workspace"
    for folder, content in ((outside, SECRET), (root / "swap", b"inside\n")):
        folder.mkdir(parents=True)
        (folder / "file.txt").write_bytes(content)
    (outside / "only-outside.txt").write_bytes(SECRET)
    (root / "other").symlink_to(outside)
    with subprocess.Popen([sys.executable, "-c", SWAP], cwd=root, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        try:
            yield root
        finally:
            swapper.kill()
    assert tree(outside) == {"file.txt": SECRET, "only-outside.txt": SECRET}


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    def unsupported(*_: object) -> int:
        raise Unsupported

    if request.param == "walk":
        monkeypatch.setattr(paths, "open_beneath", unsupported)
    return request.param


def attempt(times: int, expected: set[str], action: Callable[[int], str]) -> set[str]:
    """Do something many times, and longer if not all that may happen has happened. Return what came of it."""
    found: set[str] = set()
    for number in range(20 * times):
        if number >= times and found >= expected:
            break
        try:
            found.add(action(number))
        except PathRefused:
            found.add("refused")
    return found


def test_resolving_a_path_and_then_opening_it_leads_outside(root: Path):
    """The check is right and the file is the wrong one: this is what the tests below would show."""
    inside = f"{root}/"
    for _ in range(NAIVE_AT_MOST):
        path = root / "swap" / "file.txt"
        try:
            if os.path.realpath(path).startswith(inside) and path.read_bytes() == SECRET:
                return
        except OSError:
            continue
    raise AssertionError("the race was never lost: the swapper does not work")


def test_reading_never_leads_outside(root: Path, way: str):
    with Beneath(Workspace(str(root))) as files:
        expected = {"inside\n", "refused"}
        found = attempt(READS, expected, lambda _: files.read("swap/file.txt", 1000).data.decode())
    assert found == expected


def test_listing_never_leads_outside(root: Path, way: str):
    with Beneath(Workspace(str(root))) as files:
        expected = {"file.txt", "refused"}
        found = attempt(LISTS, expected, lambda _: " ".join(entry.name for entry in entries(files, ["swap"])))
    assert found == expected


def test_no_change_ever_happens_outside(root: Path, way: str):
    def change(number: int) -> str:
        with Beneath(Workspace(str(root))) as files, Batch(files) as batch:
            kind = ("replace", "create", "remove")[number % 3]
            if kind == "replace":
                batch.write("swap/file.txt", files.read("swap/file.txt", 1000), b"%d\n" % number)
            elif kind == "create":
                batch.write("swap/new.txt", None, b"new\n")
            else:
                batch.remove("swap/new.txt", files.read("swap/new.txt", 1000))
            batch.commit()
            return kind

    expected = {"replace", "create", "remove", "refused"}
    assert attempt(WRITES, expected, change) == expected


def test_the_tools_themselves_stay_inside(root: Path):
    registry = builtin_registry()
    inputs: list[tuple[str, dict[str, Any]]] = [
        ("workspace.read", {"path": "swap/file.txt"}),
        ("workspace.list", {"path": "swap"}),
        ("workspace.glob", {"pattern": "*.txt"}),
        ("workspace.search", {"pattern": "side", "literal": True}),
        ("workspace.write", {"path": "swap/made.txt", "content": "made\n"}),
        ("workspace.edit", {"path": "swap/file.txt", "old": "ins", "new": "Ins"}),
        (
            "patch.apply",
            {"patch": "--- a/swap/file.txt\n+++ b/swap/file.txt\n@@ -1 +1 @@\n-Inside\n+inside\n"},
        ),
    ]

    async def use() -> set[str]:
        results: set[str] = set()
        for number in range(CALLS):
            name, arguments = inputs[number % len(inputs)]
            call = ToolInvocation(
                session_id="ses_1",
                task_id=None,
                tool_call_id="call_1",
                attempt=1,
                name=name,
                input=arguments,
                workspace=Workspace(str(root)),
            )
            results.add(str((await registry.run(call, lambda *_: None)).result))
        return results

    results = asyncio.run(use())
    assert not [result for result in results if "outside" in result]
    assert "     1\tinside" in results
