"""An installed program as another version of itself on the search path, as `npm install -g` or a virtual environment has it."""

import json
import os
import shutil
from pathlib import Path

from codesdk.contract.entry import NpmPackage
from codesdk.runtimes import PROGRAMS, installed_program, program_folder


def other_version(name: str, version: str, place: Path) -> Path:
    """Make links to all files of a pinned program, and return the folder to put on the search path.

    They are hard links: a file is changed by putting another one in its place, as `replace_file` does.
    """
    program = PROGRAMS[name]
    source = program.source
    assert isinstance(source, NpmPackage)
    real = installed_program(program, source)
    assert real is not None, f"make setup installs {name}"
    folder = program_folder(program, source)
    shutil.copytree(folder, place / "lib", copy_function=_link, symlinks=True)
    package = place / "lib" / "node_modules" / source.name / "package.json"
    replace_file(package, json.dumps(json.loads(package.read_text()) | {"version": version}))
    (place / "bin").mkdir()
    (place / "bin" / program.command).symlink_to(place / "lib" / real.relative_to(folder))
    return place / "bin"


def replace_file(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)
