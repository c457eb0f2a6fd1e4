"""A daemon that things are done to: killed, paused, its disk full, its clock wrong, its descriptors and memory gone.

A limit is put on the living process and lifted again; what its clients may be refused with meanwhile is theirs to know.
"""

import asyncio
import contextlib
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ENTRY = Path(__file__).with_name("entry.py")
OPTIONS = ("--log-level", "warning", "--grace", "1", "--requests-per-second", "none")
START_S = 60.0
END_S = 60.0


class Victim:
    """One daemon after the other, all on the same data directory."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.stderr = folder / "stderr.txt"
        self._clock = folder / "clock"
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None
        self.set_clock(0)

    async def __aenter__(self) -> Self:
        self._log = self.stderr.open("wb")
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        assert self._log is not None
        self._log.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def gone(self) -> bool:
        """Whether it ended by itself."""
        return self._process is not None and self._process.returncode is not None

    async def start(self) -> None:
        """Begin the next life, and wait until it serves."""
        await self.spawn()
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await self._process.stdout.readline()
        assert line, f"the daemon ended as it began: {self.stderr.read_text()[-2000:]}"

    async def spawn(self) -> None:
        """Begin the next life."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ENTRY),
            str(self._clock),
            "--data-dir",
            str(self.data_dir),
            *OPTIONS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    async def kill(self) -> None:
        """End this life, without a word."""
        if self._process is not None and not self.gone:
            self._process.kill()
            await self._process.communicate()

    async def end(self) -> int:
        """Tell it to end, and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(END_S):
            await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode

    def set_clock(self, ahead_s: int) -> None:
        """Let its wall clock be ahead, or behind if negative."""
        data = struct.pack("<q", ahead_s * 1_000_000_000)
        if self._clock.exists():  # in place: the file is mapped
            with self._clock.open("r+b") as file:
                file.write(data)
        else:
            self._clock.write_bytes(data)

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Let it stand still."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def limited(self, what: int, soft: int) -> Generator[None]:
        """Put a limit of the kernel on it."""
        before, most = resource.prlimit(self.pid, what)
        resource.prlimit(self.pid, what, (soft, most))
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self.pid, what, (before, most))

    def open_files(self) -> int:
        """Return the number above all descriptors that it has open."""
        return 1 + max(int(entry.name) for entry in Path(f"/proc/{self.pid}/fd").iterdir())

    def address_space(self) -> int:
        """Return how many bytes of address space it has."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize()
