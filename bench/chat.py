"""`codesdk chat` at a terminal: start to prompt, the processor while a fast stream is shown, memory after an hour's transcript."""

import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from bench.measure import median
from bench.table import Report, at_most

_PROMPT_MS = 300
_PATIENCE_S = 120.0
_HOUR_MESSAGES = 60
"""What an hour of work is taken to be: a message every minute, each with ten calls whose outputs have 4 kB, words before
each call and a longer answer: 600 calls, 18,000 deltas and 3 MB of text."""
_HOUR_CALLS = 10
_HOUR_MB = 64
_BARE = "from prompt_toolkit import PromptSession; PromptSession().prompt('❯ ')"


class Terminal:
    """A process at a terminal of its own, and when it wrote what."""

    def __init__(self, command: list[str], home: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        env = {name: value for name, value in os.environ.items() if not name.startswith("CODESDK_")}
        # Bytecode is kept, as in an installed package.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(home), "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, cwd=home, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self._seen = b""

    def wait(self, words: str) -> float:
        """Read until the words came, and return the seconds since the start. What comes after them is kept."""
        until, wanted = time.monotonic() + _PATIENCE_S, words.encode()
        while wanted not in self._seen:
            ready, _, _ = select.select([self._master], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise RuntimeError(f"{words!r} did not come")
            self._seen = self._seen[-len(wanted) :] + os.read(self._master, 65_536)
        self._seen = self._seen.partition(wanted)[2]
        return time.perf_counter() - self.started

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._master)


async def run(report: Report, quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(_start, report, Path(folder), 3 if quick else 11)
        await asyncio.to_thread(_stream, report, Path(folder), 2_000 if quick else 50_000)
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(_hour, report, Path(folder), 3 if quick else _HOUR_MESSAGES)


def _start(report: Report, home: Path, rounds: int) -> None:
    commands = {
        "python and prompt_toolkit": [sys.executable, "-c", _BARE],
        "codesdk chat": [sys.executable, "-m", "codesdk.cli.main", "chat"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            terminal = Terminal(command, home)
            try:
                seconds, cpu_s = terminal.wait("❯"), terminal.cpu_s()
            finally:
                terminal.close()
            if number:  # the first of each writes the bytecode
                took[name].append(seconds * 1000)
                spent[name].append(cpu_s * 1000)
    bare, chat = commands
    report.line(
        "start to prompt",
        median(took[chat]),
        "ms",
        against=(bare, median(took[bare])),
        goal=at_most(_PROMPT_MS),
    )
    # A little more than to the prompt: what is loaded behind it begins at once. On a busy machine it says more than the time.
    report.line("start to prompt, CPU", median(spent[chat]), "ms", against=(bare, median(spent[bare])))


def _stream(report: Report, home: Path, deltas: int) -> None:
    """Show a fast stream: the engine that runs it is in the same process, and is measured alone for comparison."""
    text = ["Some words of **an answer**, and `code`. "] * 9 + ["\n\n"]
    turn = {"steps": [{"text": text * (deltas // 10)}, {"text": "The end."}]}
    (home / "script.json").write_text(json.dumps({"turns": [turn], "loop": True}))
    options = ["--runtime", "scripted", "--script", "script.json", "--workspace", "."]
    main = [sys.executable, "-m", "codesdk.cli.main"]
    terminal = Terminal([*main, "chat", *options], home)
    try:
        terminal.wait("/help")
        before, memory, wall = terminal.cpu_s(), terminal.memory_mb(), time.perf_counter()
        terminal.type("Go\r")
        terminal.wait("completed")
        terminal.wait("/help")
        spent, took = terminal.cpu_s() - before, time.perf_counter() - wall
        more = terminal.memory_mb() - memory
    finally:
        terminal.close()
    alone = _alone(main, options, home)  # once the chat holds the directory no more
    report.line(
        "a delta shown, CPU", spent / deltas * 1e6, "µs", against=("the same with -p", alone / deltas * 1e6)
    )
    report.line("deltas shown", deltas / took, "/s")
    report.line("memory at the prompt", memory, "MB")
    report.line(f"memory after {deltas:,} deltas, more", more, "MB")


def _hour(report: Report, home: Path, messages: int) -> None:
    """Talk as long as in an hour, and see what the process keeps of it: all is in the log, so it should be little."""
    (home / "notes.txt").write_text("A line of notes, of which there are many.\n" * 100)
    words = ["Some words of **an answer**, and `code`. "]
    read = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}}}
    steps = [{"steps": [{"text": words * 20}, read]}] * _HOUR_CALLS
    answer = {"steps": [{"text": (words * 9 + ["\n\n"]) * 10}]}
    (home / "hour.json").write_text(json.dumps({"turns": [*steps, answer], "loop": True}))
    options = [
        "--runtime",
        "scripted",
        "--script",
        "hour.json",
        "--workspace",
        ".",
        "--permission-mode",
        "auto",
    ]
    terminal = Terminal([sys.executable, "-m", "codesdk.cli.main", "chat", *options], home)
    try:
        terminal.wait("/help")
        memory = terminal.memory_mb()
        for number in range(messages):
            terminal.type(f"Message {number}\r")
            terminal.wait("completed")
            terminal.wait("/help")
        more = terminal.memory_mb() - memory
    finally:
        terminal.close()
    calls = messages * _HOUR_CALLS
    report.line(f"memory after {messages} messages, {calls} calls, more", more, "MB", goal=at_most(_HOUR_MB))


def _alone(main: list[str], options: list[str], home: Path) -> float:
    """Return the processor time of the same task without a terminal: `codesdk chat -p`, less that of a short answer."""
    spent: list[float] = []
    (home / "short.json").write_text(json.dumps({"turns": [{"steps": [{"text": "Hello."}]}]}))
    for script in ("short.json", "script.json"):
        command = [*main, "chat", *options, "--script", script, "-p", "Go"]
        before = os.times()
        subprocess.run(command, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        spent.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    return spent[1] - spent[0]
