"""Programs by which browsers are opened, replaced by ones that only note it: a login must never open one by itself."""

from importlib import import_module
from pathlib import Path

from codesdk.processes import SEARCH_PATH

NAMES = ("xdg-open", "open", "www-browser", "x-www-browser", "sensible-browser", "gio", "firefox")
_NOTE = '#!/bin/sh\nprintf "%s %s\\n" "${{0##*/}}" "$*" >> "{log}"\n'
_READERS = (
    "codesdk.processes",
    "codesdk.runtimes.program.logins",
    "codesdk.runtimes.claude.login",
    "codesdk.runtimes.gemini.login",
)
"""The modules that give programs with a login their search path."""


class Browsers:
    """A folder with these programs, at the beginning of a search path."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "opened.log"
        self.search_path = f"{folder}:{SEARCH_PATH}"
        for name in NAMES:
            program = folder / name
            program.write_text(_NOTE.format(log=self._log))
            program.chmod(0o755)

    def opened(self) -> list[str]:
        """Return the commands that would have opened a browser."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def forget(self) -> None:
        """Forget them: the test opened them itself."""
        self._log.unlink()


def search(path: str) -> None:
    """Have all programs with a login look for others on a path."""
    for name in _READERS:
        module = import_module(name)
        assert module.SEARCH_PATH.endswith(SEARCH_PATH)
        module.__dict__["SEARCH_PATH"] = path
