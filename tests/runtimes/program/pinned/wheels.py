"""Small packages of Python in a folder, for the real uv and pip, which are told of no other place."""

import hashlib
import zipfile
from pathlib import Path

import pytest


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> str:
    """Write a wheel, with every file executable, and return the line of a lock for it."""
    folder.mkdir(exist_ok=True)
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in (files | {f"{info}/RECORD": record}).items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def only_these(folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let uv and pip take packages from a folder and from nowhere else."""
    (place / "uv.toml").write_text(f'no-index = true\nfind-links = ["{folder}"]\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(place / "uv.toml"))
    monkeypatch.setenv("UV_CACHE_DIR", str(place / "uv-cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    monkeypatch.setenv("PIP_ROOT_USER_ACTION", "ignore")
