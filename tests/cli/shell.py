"""The real `codesdk`: run to its end, watched while it runs, or at a terminal."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from codesdk.cli.app import run as run_here

PATIENCE_S = 60.0
MODULE = [sys.executable, "-m", "codesdk.cli.main"]
# Makes the terminal on stdin the controlling one, so that Ctrl-C becomes a signal.
_OWN_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Result:
    """How a command ended and what it said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def lines(self) -> list[Any]:
        """Stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """Stderr as the one JSON error that it must be."""
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]


class Shell:
    """A directory to work in, with its own data directory and script files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace = home / "ws"
        self.workspace.mkdir(exist_ok=True)
        self.data = home / ".codesdk"

    def write_script(self, text: str, name: str = "script.yaml") -> str:
        """Write a script and return the name to call it by."""
        (self.home / name).write_text(text)
        return name

    def codesdk(self, *args: str, stdin: str = "", **env: str) -> Result:
        """Run a command to its end: one that runs a task as a process of its own, all others right here."""
        alone = {"run", "resume", "demo"} & set(args)
        return self.spawn(*args, stdin=stdin, **env) if alone else self.here(*args, stdin=stdin, **env)

    def spawn(self, *args: str, stdin: str = "", **env: str) -> Result:
        """Run a command as a process of its own."""
        done = subprocess.run(
            [*MODULE, *args],
            cwd=self.home,
            env=environment(env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def here(self, *args: str, stdin: str = "", **env: str) -> Result:
        """Run a command in this process, which is much faster."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with (
            contextlib.chdir(self.home),
            patch.dict(os.environ, environment(env), clear=True),
            patch.object(sys, "stdin", io.StringIO(stdin)),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run_here(list(args))
        return Result(code, _text(out), _text(err))

    def run(self, script: str, *args: str, stdin: str = "", mode: str = "yolo") -> Result:
        """Run a task on a script, as JSON."""
        name = self.write_script(script)
        options = [
            "--runtime=scripted",
            "--script",
            name,
            "--workspace",
            "ws",
            "--permission-mode",
            mode,
            "--allow-yolo",
        ]
        return self.codesdk("run", "Do it", *options, "--json", *args, stdin=stdin)

    def last(self) -> str:
        """Return the id of the newest session."""
        return self.codesdk("sessions", "--json", "--limit", "1").lines[0]["session_id"]


class Live:
    """A command that runs beside the test and prints JSON lines."""

    def __init__(self, shell: Shell, *args: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [*MODULE, *args],
            cwd=shell.home,
            env=environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.seen: list[dict[str, Any]] = []

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, kind: str) -> dict[str, Any]:
        """Read events up to the next one of a type, and return that."""
        stdout = self.process.stdout
        assert stdout is not None
        watchdog = _Watchdog(self.process)
        with watchdog:
            for line in stdout:
                self.seen.append(json.loads(line))
                if self.seen[-1]["type"] == kind:
                    return self.seen[-1]
        raise AssertionError(f"no {kind} came: {self.process.communicate()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> Result:
        """Wait for the end; the rest of the lines are kept."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        self.seen += [json.loads(line) for line in out.splitlines()]
        return Result(self.process.returncode, out, err)


class _Watchdog:
    """Ends a process that says nothing for too long, so that a test fails instead of hanging."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        import threading

        self._timer = threading.Timer(PATIENCE_S, process.kill)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


class Terminal:
    """A command at a terminal of its own. With `stdout`, what it prints goes into that file."""

    def __init__(
        self, shell: Shell, *args: str, columns: int = 100, stdout: Path | None = None, **env: str
    ) -> None:
        self._master, slave = pty.openpty()
        out = slave if stdout is None else os.open(stdout, os.O_WRONLY | os.O_CREAT)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *MODULE, *args],
            cwd=shell.home,
            env=environment({"TERM": "xterm-256color", **env}),
            stdin=slave,
            stdout=out,
            stderr=slave,
            start_new_session=True,
        )
        for handle in {slave, out}:
            os.close(handle)
        self.text = ""
        """All that was written to it."""
        self._read_to = 0

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def expect(self, words: str) -> None:
        """Wait until the words appear after what was expected before. Colours do not count."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.plain.find(words, self._read_to)) < 0:
            if not self._read(deadline):
                raise AssertionError(f"{words!r} did not come after: {self.plain[self._read_to :]!r}")
        self._read_to = found + len(words)

    @property
    def plain(self) -> str:
        """What was written, without escape sequences."""
        return _ESCAPE.sub("", self.text)

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._master, text.encode())

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        with contextlib.suppress(OSError):  # Linux says so when the other side is closed
            data = os.read(self._master, 65_536)
            self.text += data.decode("utf-8", "replace")
            return bool(data)
        return False


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Return an environment in which nothing of the tester's own settings shows."""
    dropped = ("CODESDK_", "_CODESDK", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "OPENAI_COMPATIBLE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    kept = {name: value for name, value in kept.items() if not name.endswith("_API_KEY")}
    return kept | extra
