"""A command → a supervised child: both pipes, the end of its stderr, and a stop that leaves nothing of it running.

Where that is allowed, it runs in a process namespace of its own, so that nothing it starts outlives it. Elsewhere it
has a process group, which is killed as a whole. Should we die first, a guard ends it with all that it started (`guard`).
"""

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.contract.workspace import Workspace
from codesdk.processes.guard import Guard, own_guard
from codesdk.redaction import Redactor

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
TAIL_BYTES = 8 * 1024
_KILL_S = 5.0
_WRAPPER_S = 1.0
_LAST_WORDS_S = 1.0
_PROBE_S = 10.0
_NAMESPACE = ("--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent")

# The shell sets variables of its own, which are not the program's.
_CHECK = """
[ "$(command -p stat -c '%d %i' .)" = "$1" ] || { echo "The workspace was replaced by another directory." >&2; exit 126; }
shift; unset PWD OLDPWD SHLVL _; exec "$@"
"""


class Child:
    """A running program. Get it from `start_child`; call `stop` whatever happens."""

    def __init__(self, process: Process, first: int | None, secrets: Iterable[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._process = process
        self._first = first
        self._redactor = Redactor(secrets)
        self._tail = b""
        self._stopped = False
        self._reading = asyncio.create_task(self._read_stderr())

    @property
    def pid(self) -> int:
        """The process that was started; with a namespace, the one outside of it."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs. Negative for a signal."""
        return self._process.returncode

    def stderr_tail(self) -> str:
        """Return the last whole lines that it wrote to stderr, redacted."""
        tail = self._tail
        if len(tail) == TAIL_BYTES:  # the first line may be cut, and a secret with it
            tail = tail.partition(b"\n")[2]
        return self._redactor.text(tail.decode("utf-8", "replace")).strip()

    async def wait(self) -> int:
        """Wait until it ends by itself and its last stderr is read. Return its exit code."""
        code = await exit_of(self._process)
        await asyncio.wait([self._reading], timeout=_LAST_WORDS_S)
        return code

    async def stop(self, grace_s: float = 1.0) -> None:
        """Ask it to end, then kill it with all it started. Return when nothing is left. Must not raise; may be called twice."""
        try:
            if self._process.returncode is None and grace_s > 0:
                self._ask_to_end()
                await _within(grace_s, self._process)
        finally:
            await self._kill()
            self._reading.cancel()
            with contextlib.suppress(OSError, RuntimeError):
                self.stdin.close()
            _close_pipes(self._process)
            if self._first is not None:
                os.close(self._first)
                self._first = None

    async def _read_stderr(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while piece := await stream.read(1 << 14):
            self._tail = (self._tail + piece)[-TAIL_BYTES:]

    def _ask_to_end(self) -> None:
        """Send SIGTERM to the program itself. To the wrapper around a namespace it would be a kill."""
        with contextlib.suppress(OSError, IndexError):  # it has ended by itself, and has no children any more
            if self._first is None:
                os.killpg(self.pid, signal.SIGTERM)
            else:
                for pid in _children(_children(self.pid)[0]):
                    os.kill(pid, signal.SIGTERM)

    async def _kill(self) -> None:
        """Kill the first process of the namespace, with which all others in it die; then the whole group."""
        if self._first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            await _within(_WRAPPER_S, self._process)  # the wrapper ends by itself, once all in it is gone
        if not self._stopped and (self._first is None or self._process.returncode is None):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._stopped = True
        await _within(_KILL_S, self._process)


async def start_child(
    argv: Sequence[str],
    *,
    cwd: Workspace,
    env: Mapping[str, str],
    secrets: Iterable[str] = (),
) -> Child:
    """Start a program with this environment and no other. Raise `TaskFailure` if it cannot be started.

    In a directory whose identity is not that of `cwd` it ends at once, with a message on stderr.
    Without a namespace it has one variable more: the mark by which it is ended should we be killed.
    """
    argv = _checked(argv, cwd)
    if await has_namespaces():
        return await _start_apart(argv, cwd.path, env, secrets)
    # Asks the kernel as well: a program may keep others from reading its environment, and so from seeing the mark.
    setpriv = _own_tool("setpriv")
    wrapped = [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv else argv
    process = await _spawn(wrapped, cwd.path, {**env, **_guard().variables}, ())
    return Child(process, None, secrets)


def _guard() -> Guard:
    try:
        return own_guard()
    except OSError as error:
        raise TaskFailure(
            f"No program was started, because /bin/sh could not be started to watch it ({error.strerror}).",
            code="RUNTIME_UNAVAILABLE",
        ) from error


def _checked(argv: Sequence[str], cwd: Workspace) -> Sequence[str]:
    """Return a command that runs only in the directory that is meant.

    Programs are started by path, and bubblewrap can enter a directory in no other way. What a process has once
    entered stays the same, so a shell looks at that, and becomes the program.
    """
    if cwd.identity is None:
        return argv
    device, inode = cwd.identity
    return ["/bin/sh", "-c", _CHECK, "sh", f"{device} {inode}", *argv]


async def _start_apart(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], secrets: Iterable[str]
) -> Child:
    bwrap = _own_tool("bwrap")
    assert bwrap is not None
    told, tell = os.pipe()
    try:
        try:
            # Unsetting a variable that nobody has is a way to carry the mark and to do nothing.
            marked = ["--unsetenv", _guard().mark]
            wrapped = [bwrap, *_NAMESPACE, *marked, "--info-fd", str(tell), "--chdir", cwd, "--", *argv]
            process = await _spawn(wrapped, cwd, env, (tell,))
        finally:
            os.close(tell)
        try:
            first = await _first_process(told)
        except BaseException:
            _discard(process)
            raise
    finally:
        os.close(told)
    return Child(process, first, secrets)


async def _first_process(told: int) -> int | None:
    """Return a handle on the first process of a new namespace, as bubblewrap reports it; None if it failed."""
    report = b""
    with contextlib.suppress(TimeoutError, msgspec.DecodeError, KeyError, ProcessLookupError):
        async with asyncio.timeout(_PROBE_S):
            while not report.rstrip().endswith(b"}"):
                await readable(told)
                piece = os.read(told, 1 << 12)
                if not piece:
                    return None
                report += piece
        # A handle, because the number may belong to another process by the time of the kill.
        return os.pidfd_open(msgspec.json.decode(report, type=dict[str, int])["child-pid"])
    return None


async def _spawn(argv: Sequence[str], cwd: str, env: Mapping[str, str], fds: Sequence[int]) -> Process:
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(env),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            pass_fds=fds,
        )
    )
    try:
        # Shielded: asyncio would kill the first process alone, and then wait until the others end, too.
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        spawning.add_done_callback(_discard_spawned)
        raise
    except OSError as error:
        raise TaskFailure(
            f"The program {argv[0]} could not be started ({error.strerror}). Check that it may be run.",
            code="RUNTIME_UNAVAILABLE",
        ) from error


def _discard_spawned(spawning: "asyncio.Future[Process]") -> None:
    if not spawning.cancelled() and spawning.exception() is None:
        _discard(spawning.result())


def _discard(process: Process) -> None:
    """Kill a program that nobody wants any more, just after its start.

    Its whole group: without its wrapper, the first process of a namespace would wait for it forever, or run on.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _close_pipes(process)


def _close_pipes(process: Process) -> None:
    """Close all pipes: one that was not read to its end is never closed by itself, and would outlive the loop."""
    cast("asyncio.SubprocessTransport", vars(process)["_transport"]).close()


def _own_tool(name: str) -> str | None:
    """Return a program that CodeSDK itself runs. Our search path may lead into a workspace, so it is not asked."""
    return shutil.which(name, path=SEARCH_PATH)


async def has_namespaces() -> bool:
    """Return whether a process namespace can be made here. Each bubblewrap is tried once."""
    bwrap = _own_tool("bwrap")
    if bwrap is None:
        return False
    if bwrap not in _tried:
        _tried[bwrap] = await _try_namespace(bwrap)
    return _tried[bwrap]


_tried: dict[str, bool] = {}


async def _try_namespace(bwrap: str) -> bool:
    argv = [bwrap, *_NAMESPACE, "--", "/bin/true"]
    process = await asyncio.create_subprocess_exec(
        *argv, env={}, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    await _within(_PROBE_S, process)
    return process.returncode == 0


async def _within(seconds: float, process: Process) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await exit_of(process)


async def exit_of(process: Process) -> int:
    """Wait for the end of a process itself. `Process.wait` waits for its pipes, too, which a grandchild may hold open."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        handle = None
    if handle is not None:
        try:
            await readable(handle)
        finally:
            os.close(handle)
    while process.returncode is None:  # noqa: ASYNC110 - asyncio sets it a moment later, and signals nobody
        await asyncio.sleep(0.002)
    return process.returncode


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as listed:  # noqa: PTH123 - a file of the kernel: reading does not block
        return [int(child) for child in listed.read().split()]


async def readable(fd: int) -> None:
    """Wait until a descriptor is readable. A process descriptor is when the process has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)
