"""`codesdk runtimes install`, for real: by uv and by pip, into an environment that is thrown away.

The package is a small one of the same name and version from a folder: no registry is asked, and none could be reached.
"""

import site
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from codesdk.testing.network import alone

_NAME = "openai_codex_cli_bin-0.163.0"
_MODULE = """
from pathlib import Path

def bundled_codex_path():
    return Path(__file__).parent / "codex"
"""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with a package that brings a program along."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    files = {
        "codex_cli_bin/__init__.py": _MODULE,
        "codex_cli_bin/codex": "#!/bin/sh\n",
        f"{_NAME}.dist-info/METADATA": "Metadata-Version: 2.1\nName: openai-codex-cli-bin\nVersion: 0.163.0\n",
        f"{_NAME}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{_NAME}.dist-info/RECORD"])
    with zipfile.ZipFile(folder / f"{_NAME}-py3-none-any.whl", "w") as wheel:
        for name, text in (files | {f"{_NAME}.dist-info/RECORD": record}).items():
            wheel.writestr(name, text)
    return folder


class Elsewhere:
    """An environment with CodeSDK and all that it needs, but without the programs of runtimes."""

    def __init__(self, place: Path, wheels: Path, *, with_uv: bool) -> None:
        self._python = place / "venv" / "bin" / "python"
        pip = [] if with_uv else ["--system-site-packages"]
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", *pip, place / "venv"], check=True)
        libraries = place / "libraries"
        libraries.mkdir()
        for entry in Path(site.getsitepackages()[0]).iterdir():
            if not entry.name.startswith(("codex_cli_bin", "openai_codex", "claude_agent_sdk")):
                (libraries / entry.name).symlink_to(entry)
        (place / "uv.toml").write_text(f'no-index = true\nfind-links = ["{wheels}"]\n')
        source = Path(__file__).parents[2] / "src"
        tools = str(Path(sys.executable).parent) if with_uv else ""
        self._env = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "HOME": str(place),
            "PYTHONPATH": f"{source}:{libraries}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "UV_CONFIG_FILE": str(place / "uv.toml"),
            "UV_CACHE_DIR": str(place / "cache"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def codesdk(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._python, "-m", "codesdk.cli.main", *args],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.mark.parametrize("with_uv", [True, False], ids=["uv", "pip"])
def test_a_program_is_installed_for_the_python_that_asked(tmp_path: Path, wheels: Path, with_uv: bool):
    place = Elsewhere(tmp_path, wheels, with_uv=with_uv)
    asked = place.codesdk("runtimes", "install", "codex")
    assert (asked.returncode, "Use --yes" in asked.stderr) == (2, True)
    done = place.codesdk("runtimes", "install", "codex", "--yes")
    assert done.returncode == 0, done.stderr
    assert ("uv pip install" in done.stdout, "-m pip install" in done.stdout) == (with_uv, not with_uv)
    (program,) = (tmp_path / "venv").glob("lib/python*/site-packages/codex_cli_bin/codex")
    assert done.stdout.endswith(f"codex-sdk: {program}, version 0.163.0, is installed.\n")


def test_what_could_not_be_installed_is_an_exit_code(tmp_path: Path, wheels: Path):
    (wheels / f"{_NAME}-py3-none-any.whl").unlink()
    failed = Elsewhere(tmp_path, wheels, with_uv=True).codesdk("runtimes", "install", "codex", "--yes")
    assert failed.returncode == 1
    assert "codex-sdk was not installed: the command ended with code 1." in failed.stderr
