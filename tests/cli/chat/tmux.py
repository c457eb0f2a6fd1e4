"""A real terminal: tmux, in which `codesdk chat` runs. Screens are looked at until they are as they should be."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli.shell import PATIENCE_S, Shell, environment

POLL_S = 0.05
PROMPT = "▌ ❯"


class Tmux:
    """One window of a tmux server of its own, with a command in it."""

    def __init__(
        self, shell: Shell, command: list[str], *, columns: int = 90, rows: int = 30, **env: str
    ) -> None:
        self.shell = shell
        self._folder = tempfile.TemporaryDirectory(prefix="tmux")  # short: a socket's path is
        self._socket = str(Path(self._folder.name) / "s")
        self._end = Path(self._folder.name) / "end"
        given = {"XDG_STATE_HOME": str(shell.home / "state"), "COVERAGE_PROCESS_START": "", **env}
        pairs = [f"{name}={value}" for name, value in given.items()]
        line = f"env {shlex.join(pairs)} {shlex.join(command)}; echo $? > {shlex.quote(str(self._end))}; exec sleep 3600"
        clean = environment({"LANG": "C.UTF-8", "TERM": "xterm-256color"})
        clean.pop("TMUX", None)
        self._env = clean
        size = ["-x", str(columns), "-y", str(rows)]
        self._call("-f", "/dev/null", "new-session", "-d", *size, "-c", str(shell.home), line)
        self._call("set-option", "-g", "history-limit", "20000")

    def __enter__(self) -> "Tmux":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._call("kill-server")
        self._folder.cleanup()

    def _call(self, *args: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *args],
            env=self._env,
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=PATIENCE_S,
            check=True,
        )
        return done.stdout

    def screen(self, *, history: bool = False, colours: bool = False) -> str:
        """Return what is on the screen; with `history`, all that was."""
        more = ["-S", "-"] if history else []
        return self._call("capture-pane", "-p", *(["-e"] if colours else []), *more).rstrip("\n")

    def wait(self, wanted: str | Callable[[str], bool], *, history: bool = False) -> str:
        """Return the screen as soon as it is as wanted: contains some words, or passes a test."""
        test = (lambda shown: wanted in shown) if isinstance(wanted, str) else wanted
        until = time.monotonic() + PATIENCE_S
        while not test(shown := self.screen(history=history)):
            if time.monotonic() > until:
                raise AssertionError(f"{wanted!r} did not come:\n{shown}")
            time.sleep(POLL_S)
        return shown

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds that no screen shows."""
        until = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until, f"it never came to hold:\n{self.screen()}"
            time.sleep(POLL_S)

    def type(self, text: str) -> None:
        """Type characters."""
        self._call("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by their names in tmux: Enter, C-c, Up."""
        self._call("send-keys", *keys)

    def say(self, text: str) -> None:
        """Type a line and send it."""
        self.type(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """Paste, as a terminal with bracketed paste does."""
        self._call("load-buffer", "-b", "p", "-", stdin=text)
        self._call("paste-buffer", "-p", "-b", "p")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal."""
        self._call("resize-window", "-x", str(columns), "-y", str(rows))

    def end(self) -> int:
        """Wait for the end of the command and return its exit code."""
        self.wait_until(lambda: self._end.exists() and self._end.read_text().endswith("\n"))
        return int(self._end.read_text())


def chat(shell: Shell, script: str, *args: str, columns: int = 90, rows: int = 30, **env: str) -> Tmux:
    """Start a chat on a script, and wait for nothing."""
    name = shell.write_script(script)
    options = ["--script", name, "--workspace", "ws"]
    if "--runtime" not in args:
        options += ["--runtime", "scripted"]
    if "--permission-mode" not in args:
        options += ["--permission-mode", "auto"]
    return Tmux(shell, chat_command(*options, *args), columns=columns, rows=rows, **env)


def chat_command(*args: str) -> list[str]:
    """Return the command line of a chat."""
    return [sys.executable, "-m", "codesdk.cli.main", "chat", *args]


def ready(terminal: Tmux) -> str:
    """Wait until the chat is there and connected."""
    return terminal.wait(lambda shown: PROMPT in shown and "/help" in shown)


def foreign_lines(shown: str) -> list[str]:
    """Return the lines that are not ours, for what others wrote."""
    return [line for line in shown.split("\n") if line and not line.startswith("▌")]


def without_controls(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


assert os.name == "posix", "tmux is there only"
