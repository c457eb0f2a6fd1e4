"""`codesdk runtimes install` and `uninstall` for programs that get folders of their own, with the real npm."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.runtimes.program.pinned.registry import NAME, PROGRAM, Registry

from codesdk.cli import installation
from codesdk.cli.app import run
from codesdk.runtimes import PROGRAMS
from codesdk.runtimes.program.pinned import folders
from codesdk.testing.network import alone

Codesdk = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    made = Registry()
    shutil.copytree(folders.LOCKS, tmp_path / "locks")
    made.write_lock(tmp_path / "locks" / NAME)
    monkeypatch.setattr(folders, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(installation, "PROGRAMS", PROGRAMS | {NAME: PROGRAM})
    monkeypatch.setenv("CODESDK_PROGRAMS", str(tmp_path / "programs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    with alone(), made.serving():
        monkeypatch.setenv("npm_config_registry", made.url)
        yield made


@pytest.fixture
def codesdk(capfd: pytest.CaptureFixture[str]) -> Codesdk:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["runtimes", *arguments])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.mark.slow
def test_a_program_is_shown_installed_and_removed(codesdk: Codesdk, tmp_path: Path):
    code, shown, _ = codesdk("install", NAME, "--dry-run")
    assert code == 0
    assert "npm ci --prefix" in shown
    assert "--ignore-scripts --engine-strict --omit=dev --no-audit --no-fund" in shown
    assert not (tmp_path / "programs").exists()

    code, _, said = codesdk("install", NAME)
    assert (code, "There is no terminal to ask at. Use --yes" in said) == (2, True)

    code, said, _ = codesdk("install", NAME, "--yes")
    assert code == 0
    assert said.startswith(shown)
    assert "Installing little-agent 1.2.3 …" in said
    [folder] = (tmp_path / "programs" / NAME).iterdir()
    assert f"little-agent 1.2.3 is installed: {folder} (0 MB, " in said

    code, said, _ = codesdk("install", NAME, "--yes")
    program = folder / "node_modules" / NAME / "agent.js"
    assert (code, said) == (0, f"little-agent 1.2.3 is installed already: {program}\n")

    code, _, said = codesdk("uninstall", NAME)
    assert (code, "Use --yes" in said) == (2, True)
    code, said, _ = codesdk("uninstall", NAME, "--yes")
    assert (code, said) == (0, f"{folder} is removed.\n")
    assert not folder.exists()
    assert codesdk("uninstall", NAME, "--yes")[:2] == (0, "little-agent is not installed.\n")


@pytest.mark.slow
def test_one_that_cannot_be_installed_does_not_keep_the_others_from_it(
    codesdk: Codesdk, registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    code, said, error = codesdk("install", "scripted", NAME, "--yes")
    assert code == 2
    assert "there is nothing to install" in error
    assert "little-agent 1.2.3 is installed" in said
    assert codesdk("uninstall", NAME, "--yes")[0] == 0
    registry.served.clear()
    registry.packages.clear()
    monkeypatch.setenv("npm_config_prefer_online", "true")
    monkeypatch.setenv("npm_config_cache", str(Path(folders.LOCKS).parent / "other-cache"))
    code, said, error = codesdk("install", "scripted", NAME, "--yes")
    assert code == 1
    assert "little-agent 1.2.3 was not installed: npm ended with code 1." in error


def test_every_program_has_a_name_to_be_installed_by(codesdk: Codesdk):
    assert {"claude", "codex", *PROGRAMS} <= set(installation.installable())
    for arguments in ((), (NAME, "--all")):
        code, _, said = codesdk("install", *arguments)
        assert (code, "Name the programs to install, or use --all." in said) == (2, True)


def test_what_is_no_program_of_ours_is_not_removed(codesdk: Codesdk):
    code, _, said = codesdk("uninstall", "claude", "--yes")
    assert code == 2
    assert "is a package of this Python, claude-agent-sdk: use uv or pip to remove it." in said
    code, _, said = codesdk("uninstall", "nothing", "--yes")
    assert (code, 'There is no runtime "nothing".' in said) == (2, True)
