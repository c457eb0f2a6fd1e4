"""What a runtime that is a program must also do, seen from its process: missing, garbled, killed, restarted.

The counterpart of `program_checks`. The program is always the real one: it is killed, or a filter stands
between it and the runtime.
"""

import sys
from pathlib import Path

from codesdk.sdk import Task
from codesdk.testing.bench import READ, Bench, payloads, seen
from codesdk.testing.cells import Unchecked, holds, same
from codesdk.testing.network import is_alone, tried_outside
from codesdk.testing.processes import children, kill_since
from codesdk.testing.program_checks import PROCESS, PROGRAM, READS, failing, often
from codesdk.testing.runtime_checks import CONTENT, Check, make_check, says

GARBAGE = (
    b"Welcome! You are running the newest version.\n",
    b"\n",
    b'{"type": "assist\n',
    b"\xff\xfe\x00\n",
    b"[]\n",
    b"null\n",
    b'{"type": "no such frame", "method": "no/such/method", "params": {}}\n',
)
_GARBLER = """\
#!{python}
import itertools, os, stat, subprocess, sys
if stat.S_ISCHR(os.fstat(0).st_mode):  # asked for its version or the like, not spoken with
    os.execv({command!r}[0], [*{command!r}, *sys.argv[1:]])
noise = itertools.cycle({garbage!r})
with subprocess.Popen([*{command!r}, *sys.argv[1:]], stdout=subprocess.PIPE) as inner:
    for line in inner.stdout:
        sys.stdout.buffer.write(next(noise) + line)
        sys.stdout.buffer.flush()
sys.exit(inner.returncode)
"""


async def _restarted(bench: Bench) -> None:
    async with bench.sdk() as first:
        session = await bench.session(first)
        task = await session.start("Say one.")
        same("the first answer", (await task.result()).text, "One.")
        known = await _own_id(bench, task)
    if bench.capabilities.state_model == "local_disk":
        holds(any(bench.state.rglob("*")), "the program keeps its state in the folders that it is given")
    async with bench.sdk() as second:
        again = await bench.again(second, session)
        task = await again.start("Say two.")
        same("the second answer", (await task.result()).text, "Two.")
        told = await bench.told(task)
    holds("Say one." in told and "One." in told, "the model is told what was said before the restart")
    if bench.capabilities.resume_model == "native":
        same("the program's own id of the session", await _own_id(bench, task), known)


async def _own_id(bench: Bench, task: Task) -> str | None:
    """Return the runtime's own id of a task's session."""
    return (await bench.events(task))[-1].runtime.runtime_session_id


async def _missing(bench: Bench) -> None:
    bench.drive(str(bench.workspace / "no-such-program"))
    async with bench.sdk() as sdk:
        error = await failing(await (await bench.session(sdk)).start("Say hello."), "RUNTIME_UNAVAILABLE")
    holds("install" in error.message.lower(), f"the error says what installs it, found {error.message!r}")


async def _killed(bench: Bench) -> None:
    bench.tools.hold()
    before = children()
    async with bench.task("Read the note.", "yolo") as task:
        await seen(task, "tool.call.started")
        kill_since(before)
        await failing(task, "RUNTIME_CRASHED")


async def _malformed(bench: Bench) -> None:
    bench.tools.give(READ, CONTENT)
    bench.drive(_garbler(await bench.own_program(), bench.workspace.parent / "garbled"))
    async with bench.task("Read the note.", "yolo") as task:
        same("the answer", (await task.result()).text, "Done.")
    same("what ran", [run.name for run in bench.tools.invocations], [READ])
    noted = [p for p in payloads(await bench.events(task), "runtime.notice") if p.kind == "unknown_frame"]
    holds(bool(noted), "what the program wrote and nobody understands is in the log")


async def _loopback_only(bench: Bench) -> None:
    if not is_alone():
        raise Unchecked("only root can give the programs a network of their own")
    bench.tools.give(READ, CONTENT)
    async with bench.task("Read the note.", "yolo") as task:
        same("the answer", (await task.result()).text, "Done.")
    same("attempts to reach another address", tried_outside(), 0)


async def _leaves_nothing(bench: Bench) -> None:
    before = children()
    async with bench.sdk() as sdk:
        await (await (await bench.session(sdk)).start("Say hello.")).result()
        holds(children().keys() > before.keys(), "the program runs while the session is open")
    left = {pid: name for pid, name in children().items() if pid not in before}
    same("processes that are left", left, {})


def _garbler(command: list[str], path: Path) -> str:
    """Write a program that runs another one and puts garbage before each line of its output."""
    path.write_text(_GARBLER.format(python=sys.executable, command=command, garbage=GARBAGE))
    path.chmod(0o755)
    return str(path)


PROCESS_CHECKS: tuple[Check, ...] = (
    make_check(
        "resume after restart",
        _restarted,
        says("One."),
        says("Two."),
        where=PROGRAM,
        shows=("state_model", "resume_model"),
    ),
    make_check("program missing", _missing, says("Never."), where=PROCESS),
    make_check("program killed mid-task", _killed, READS, *often({"text": "Again."}), where=PROCESS),
    make_check("malformed output", _malformed, READS, says("Done."), where=PROCESS),
    make_check("no connection except loopback", _loopback_only, READS, says("Done."), where=PROGRAM),
    make_check("no process left behind", _leaves_nothing, says("Hello."), where=PROCESS),
)
