"""Bubblewrap as a backend: what a command may use up, how it ends with all it started, and whom it runs as."""

import ast
import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox import attacks
from tests.sandbox.attacks import MB
from tests.sandbox.driver import ORDINARY, Job, Report, any_python, drive, environment, identity
from tests.sandbox.stage import open_directory

from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import (
    Command,
    CommandEnd,
    SandboxCapabilities,
    SandboxLimits,
    SandboxUnavailable,
)
from codesdk.sandbox.bubblewrap import sandbox as bubblewrap
from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox, cgroups
from codesdk.sandbox.owner import SANDBOX_USER, User

IS_ROOT = os.geteuid() == 0
OWNER = SANDBOX_USER if IS_ROOT else User(os.geteuid(), os.getegid())
only_root = pytest.mark.skipif(not IS_ROOT, reason="this is about what root must not do")


@pytest.fixture
def workspace() -> Generator[Path]:
    with open_directory() as root:
        made = root / "workspace"
        made.mkdir()
        _give(made)
        yield made


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    return BubblewrapSandbox()


def _give(*paths: Path, owner: User = OWNER) -> None:
    for path in paths:
        os.chown(path, *owner, follow_symlinks=False)


def _command(workspace: Path, *argv: str, **fields: Any) -> Command:
    return Command(session_id="s", argv=argv, workspace=Workspace(str(workspace)), **fields)


def _python(program: str, *more: str, told: str = "{}") -> list[str]:
    return ["/usr/bin/python3", "-I", "-c", attacks.PRELUDE + program, told, *more]


class Said:
    """Takes output, and can be waited on for a word."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""
        self._came = asyncio.Event()

    def __call__(self, stream: str, data: bytes) -> None:
        if stream == "stdout":
            self.out += data
        else:
            self.err += data
        self._came.set()

    async def wait_for(self, word: bytes) -> None:
        while word not in self.out:
            self._came.clear()
            await self._came.wait()


def _facts(end: CommandEnd) -> dict[str, Any]:
    return {"exit_code": end.exit_code, "limits_hit": end.limits_hit}


def alive(token: str) -> list[int]:
    """Return the processes that were started with a word, wherever they are."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if token.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid()]


# --- what it says it can do


async def test_its_capabilities_are_what_was_found_by_running_something(sandbox):
    found = await sandbox.capabilities()
    assert found == SandboxCapabilities(
        backend="bubblewrap",
        available=True,
        execution_env="codesdk_bubblewrap",
        limits=found.limits,
        filesystem=True,
        network=True,
        egress=True,
        syscalls=True,
        notes=found.notes,
    )
    with_groups = {"memory", "cpu"} if cgroups.detect() else set()
    assert found.limits == {"wall", "output", "scratch", "file_size", "open_files", "processes", *with_groups}
    assert await sandbox.capabilities() is found


async def test_without_bubblewrap_it_names_the_package_and_runs_nothing(monkeypatch, workspace):
    monkeypatch.setattr(bubblewrap, "PROGRAMS", ("/nowhere/bwrap",))
    sandbox = BubblewrapSandbox()
    found = await sandbox.capabilities()
    assert found == SandboxCapabilities(
        backend="bubblewrap",
        available=False,
        execution_env="codesdk_bubblewrap",
        notes=["bubblewrap is not installed; on Debian or Ubuntu: apt install bubblewrap."],
    )
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        await sandbox.run(_command(workspace, "touch", "ran"), Said())
    assert list(workspace.iterdir()) == []


async def test_a_machine_without_a_filter_is_refused_unless_the_operator_accepts_it(monkeypatch, workspace):
    monkeypatch.setattr(bubblewrap, "compile_filter", lambda: None)
    with pytest.raises(SandboxUnavailable, match="no system call filter"):
        await BubblewrapSandbox().run(_command(workspace, "true"), Said())
    accepted = BubblewrapSandbox(allow_unfiltered=True)
    assert (await accepted.run(_command(workspace, "true"), Said())).exit_code == 0
    assert not (await accepted.capabilities()).syscalls


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("Unknown option --bind-fd", "Unknown option --bind-fd. It is too old: take 0.10"),
        ("setting up uid map: Permission denied", "User namespaces may be switched off"),
        ("", "it said nothing"),
    ],
)
async def test_a_bubblewrap_that_gives_up_is_quoted_with_what_may_help(words, hint, monkeypatch, workspace):
    fake = workspace / "bwrap"
    fake.write_text(f"#!/bin/sh\n[ -z '{words}' ] || echo 'bwrap: {words}' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "PROGRAMS", (str(fake),))
    found = await BubblewrapSandbox().capabilities()
    assert (found.available, len(found.notes)) == (False, 1)
    assert found.notes[0].startswith("bubblewrap could not set the sandbox up: ")
    assert hint in found.notes[0]


@only_root
async def test_a_command_whose_limits_cannot_be_put_in_place_is_never_begun(monkeypatch, sandbox, workspace):
    await sandbox.capabilities()

    def fail(group: cgroups.Group, pid: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(cgroups.Group, "add", fail)
    with pytest.raises(SandboxUnavailable, match="could not be set up: Input/output error"):
        await sandbox.run(_command(workspace, "touch", "ran"), Said())
    assert list(workspace.iterdir()) == []


async def test_a_command_whose_way_out_cannot_be_watched_is_never_begun(monkeypatch, sandbox, workspace):
    await sandbox.capabilities()

    def fail(pid: int) -> None:
        raise OSError("no way in")

    monkeypatch.setattr(bubblewrap, "listen_inside", fail)
    with pytest.raises(SandboxUnavailable, match="could not be set up: no way in"):
        await sandbox.run(_command(workspace, "touch", "ran", hosts=["a.example"]), Said())
    assert list(workspace.iterdir()) == []


async def test_a_required_limit_that_cannot_be_enforced_refuses_the_command(monkeypatch, workspace):
    monkeypatch.setattr(cgroups, "detect", lambda: None)
    sandbox = BubblewrapSandbox()
    with pytest.raises(SandboxUnavailable, match="limit on memory is required and cannot be enforced"):
        await sandbox.run(_command(workspace, "touch", "ran", required=frozenset({"memory", "wall"})), Said())
    assert list(workspace.iterdir()) == []


# --- what goes in and comes out


async def test_a_command_has_an_environment_of_its_own_and_both_streams_and_its_exit_code(sandbox, workspace):
    said = Said()
    program = "pwd; whoami; echo $GIVEN; cat /proc/1/cmdline | tr '\\0' '\\n' | grep -c secret[-]value; echo oops >&2; exit 7"
    (workspace / "sub").mkdir()
    end = await sandbox.run(
        _command(workspace, "sh", "-c", program, cwd="sub", env={"GIVEN": "secret-value"}), said
    )
    assert (said.out, said.err) == (b"/workspace/sub\nsandbox\nsecret-value\n0\n", b"oops\n")
    assert end == CommandEnd(exit_code=7, duration_ms=end.duration_ms, output_bytes=len(said.out + said.err))


async def test_a_signal_is_told_as_128_plus_its_number(sandbox, workspace):
    assert (await sandbox.run(_command(workspace, "sh", "-c", "kill -TERM $$"), Said())).exit_code == 143


async def test_a_program_that_is_not_there_is_127(sandbox, workspace):
    said = Said()
    assert (await sandbox.run(_command(workspace, "no-such-program"), said)).exit_code == 127
    assert b"no-such-program" in said.err


async def test_a_read_only_workspace_can_be_read_only(sandbox, workspace):
    (workspace / "file").write_text("here\n")
    said = Said()
    end = await sandbox.run(_command(workspace, "sh", "-c", "cat file; touch new", writable=False), said)
    assert (end.exit_code, said.out) == (1, b"here\n")
    assert b"Read-only file system" in said.err


async def test_everyday_tools_work_under_the_filter(sandbox, workspace):
    program = """
set -e
git init -q repo; cd repo; git config user.email a@b; git config user.name n
echo hi > f; git add f; git commit -qm one; git log --oneline | wc -l
node -e 'console.log(require("child_process").execSync("echo node").toString().trim(), typeof require("os").networkInterfaces())'
echo 'int main(){return 0;}' > a.c; gcc a.c -o a; ./a && echo gcc
python3 -c 'import multiprocessing as m; print(sum(m.Pool(2).map(abs, [-1, -2])))'
python3 -c 'import socket; s = socket.create_server(("localhost", 0)); socket.create_connection(s.getsockname()); print("loopback")'
python3 -c 'import pty; pty.spawn(["echo", "pty"])'
"""
    said = Said()
    end = await sandbox.run(_command(workspace, "sh", "-c", program), said)
    assert (end.exit_code, said.out.split(), said.err) == (
        0,
        b"1 node object gcc 3 loopback pty".split(),
        b"",
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"argv": []}, "The command is empty"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"cwd": "../elsewhere"}, "must be inside the workspace"),
        ({"cwd": "/usr"}, "must be inside the workspace"),
        ({"cwd": "missing"}, 'no directory "missing" in the workspace'),
        ({"env": {"A=B": "c"}}, "cannot be the name or value"),
        ({"argv": ["true", "x" * 3_000_000]}, "too long for the system"),
        ({"hosts": ["*"]}, "cannot be allowed"),
        ({"workspace": Workspace("/nowhere/at/all")}, "workspace cannot be opened: nowhere does not exist"),
    ],
)
async def test_a_command_that_makes_no_sense_is_refused_in_words(fields, words, sandbox, workspace):
    good: dict[str, Any] = {
        "session_id": "s",
        "argv": ["touch", "ran"],
        "workspace": Workspace(str(workspace)),
    }
    with pytest.raises(InvalidRequest, match=words.replace("*", r"\*")):
        await sandbox.run(Command(**good | fields), Said())
    assert list(workspace.iterdir()) == []


# --- rows 17 to 23: what it may use up


@pytest.mark.parametrize(
    ("program", "limits", "words", "facts"),
    [
        pytest.param(
            attacks.FORK_BOMB,
            SandboxLimits(processes=64),
            b"EAGAIN few",
            {"exit_code": 0, "limits_hit": ("processes",)},
            id="17: a fork bomb",
        ),
        pytest.param(
            attacks.MEMORY_BOMB,
            SandboxLimits(memory_bytes=128 * MB),
            b"",
            {"exit_code": 137, "limits_hit": ("memory",)},
            id="18: a memory bomb",
        ),
        pytest.param(
            attacks.MEMORY_SHARED_OUT,
            SandboxLimits(memory_bytes=256 * MB),
            b"still here",
            {"exit_code": 0, "limits_hit": ("memory",)},
            id="19: children that share it out are killed, and that is told",
        ),
        pytest.param(
            attacks.CPU_SPIN_SHARED_OUT,
            SandboxLimits(cpu_s=1),
            b"",
            {"exit_code": 137, "limits_hit": ("cpu",)},
            id="20: spinning, shared out",
        ),
    ],
)
@only_root
async def test_limits_hold_for_all_processes_together(program, limits, words, facts, sandbox, workspace):
    said = Said()
    end = await sandbox.run(_command(workspace, *_python(program), limits=limits), said)
    assert (_facts(end), b" ".join(said.out.split())) == (facts, words)
    assert (end.oom_kills > 0) == ("memory" in facts["limits_hit"])


def test_an_ordinary_user_has_limits_on_each_process_alone():
    jobs = {
        "17": (attacks.FORK_BOMB, SandboxLimits(processes=64)),
        "18": (attacks.MEMORY_BOMB, SandboxLimits(memory_bytes=128 * MB)),
        "20": (attacks.CPU_SPIN, SandboxLimits(cpu_s=1)),
    }
    with open_directory() as root:
        owner = User(ORDINARY, ORDINARY) if IS_ROOT else OWNER
        _give(root, owner=owner)
        reports = drive(
            [
                Job(name, _command(root, *_python(program), limits=limits))
                for name, (program, limits) in jobs.items()
            ],
            uid=ORDINARY if IS_ROOT else None,
        )
    assert reports.jobs == {
        "17": Report(["EAGAIN", "few"], 0),
        "18": Report([], 1),
        "20": Report([], 152, ["cpu"]),
    }
    if IS_ROOT:
        assert reports.capabilities.limits == {
            *("wall", "output", "scratch", "file_size", "open_files", "processes")
        }
        assert "Memory and CPU time are limited for each process only" in reports.capabilities.notes[0]


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/tmp/file", "ENOSPC"),
        ("/home/sandbox/file", "ENOSPC"),
        ("/dev/shm/file", "ENOSPC"),
        ("/dev/file", "EROFS"),
    ],
)
async def test_21_scratch_space_has_a_size(path, word, sandbox, workspace):
    said = Said()
    told = f'{{"path": "{path}", "size": {40 * MB}}}'
    limits = SandboxLimits(scratch_bytes=16 * MB)
    await sandbox.run(_command(workspace, *_python(attacks.FILL, told=told), limits=limits), said)
    assert said.out.decode().split() == [word]


async def test_22_files_in_the_workspace_have_a_size_but_their_number_is_not_limited(sandbox, workspace):
    said = Said()
    limits = SandboxLimits(file_bytes=8 * MB)
    for name, size in (("large", 10 * MB), ("one", 7 * MB), ("two", 7 * MB)):
        told = f'{{"path": "{name}", "size": {size}}}'
        await sandbox.run(_command(workspace, *_python(attacks.FILL, told=told), limits=limits), said)
    assert said.out.decode().split() == ["EFBIG", "REACHED", "REACHED"]


async def test_22_a_program_that_dies_of_a_large_file_is_told(sandbox, workspace):
    end = await sandbox.run(
        _command(workspace, "dd", "if=/dev/zero", "of=large", "bs=1M", limits=SandboxLimits(file_bytes=MB)),
        Said(),
    )
    assert _facts(end) == {"exit_code": 153, "limits_hit": ("file_size",)}


async def test_23_a_flood_of_output_is_cut_and_ended(sandbox, workspace):
    said = Said()
    limits = SandboxLimits(output_bytes=3 * MB)
    end = await sandbox.run(_command(workspace, *_python(attacks.FLOOD), limits=limits), said)
    assert _facts(end) == {"exit_code": 137, "limits_hit": ("output",)}
    assert end.output_bytes == len(said.out) == 3 * MB


# --- rows 24 to 26: nothing stays behind


async def test_24_when_its_time_is_over_everything_is_gone(sandbox, workspace):
    token = uuid.uuid4().hex
    end = await sandbox.run(
        _command(workspace, *_python(attacks.STAYS, token), limits=SandboxLimits(wall_s=2)), Said()
    )
    assert (_facts(end), alive(token)) == ({"exit_code": 137, "limits_hit": ("wall",)}, [])


async def test_24_cancelled_everything_is_gone_before_it_returns(sandbox, workspace):
    token, said = uuid.uuid4().hex, Said()
    await sandbox.capabilities()
    running = asyncio.create_task(sandbox.run(_command(workspace, *_python(attacks.STAYS, token)), said))
    await said.wait_for(b"daemon")
    assert alive(token)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(token) == []


@pytest.mark.parametrize("steps", range(0, 12, 2))
async def test_24_cancelled_at_any_step_of_its_start_nothing_is_left(steps, sandbox, workspace):
    token = uuid.uuid4().hex
    await sandbox.run(_command(workspace, "true"), Said())
    running = asyncio.create_task(sandbox.run(_command(workspace, *_python(attacks.STAYS, token)), Said()))
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(token) == []


async def test_25_a_daemon_ends_with_its_command_even_if_it_holds_the_output(sandbox, workspace):
    token = uuid.uuid4().hex
    program = attacks.DAEMON + "os.wait(); say('done')"
    end = await sandbox.run(_command(workspace, *_python(program, token)), Said())
    assert (_facts(end), alive(token)) == ({"exit_code": 0, "limits_hit": ()}, [])


DIES = """
import asyncio, sys
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command
from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox
command = Command(session_id="s", argv=sys.argv[2:], workspace=Workspace(sys.argv[1]))
asyncio.run(BubblewrapSandbox().run(command, lambda stream, data: (sys.stdout.buffer.write(data), sys.stdout.flush())))
"""


@pytest.mark.parametrize("uid", [None, ORDINARY] if IS_ROOT else [None])
def test_26_when_its_parent_is_killed_everything_goes(uid, workspace):
    token = uuid.uuid4().hex
    if uid is not None:
        _give(workspace, owner=User(uid, uid))
    with subprocess.Popen(
        [any_python(), "-c", DIES, str(workspace), *_python(attacks.STAYS, token)],
        stdout=subprocess.PIPE,
        env=environment(),
        **identity(uid),
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"daemon\n"
        watched = [os.pidfd_open(pid) for pid in alive(token)]
        parent.send_signal(signal.SIGKILL)
    assert len(watched) > 2
    assert [_ends(fd) for fd in watched] == [True] * len(watched)


def _ends(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = bool(poll.poll(60_000))
    os.close(pidfd)
    return ended


async def test_a_command_outlives_the_threads_that_helped_to_start_it(sandbox, workspace):
    said = Said()
    pool = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    program = "import time\nsay('begun')\nwhile not os.path.exists('go'): time.sleep(0.02)\nsay('went on')"
    running = asyncio.create_task(sandbox.run(_command(workspace, *_python(program)), said))
    await said.wait_for(b"begun")
    pool.shutdown()
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor()
    )  # other tests may use this loop, too
    (workspace / "go").touch()
    assert ((await running).exit_code, said.out) == (0, b"begun\nwent on\n")


async def test_42_the_first_process_of_the_sandbox_holds_nothing_of_the_host_either(sandbox, workspace):
    outside = workspace.parent / "outside"
    outside.write_text("before")
    os.link(outside, workspace / "twin")
    (workspace / ".git").mkdir()
    _give(outside, workspace / ".git")
    said = Said()
    program = (
        "for name in sorted(os.listdir('/proc/1/fd')): say(os.readlink(f'/proc/1/fd/{name}').split('[')[0])"
    )
    await sandbox.run(_command(workspace, *_python(program)), said)
    assert said.out.decode().split() == ["/dev/null", "pipe:", "pipe:", "anon_inode:"]


FIRST = """
import asyncio, pathlib, sys
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command, SandboxLimits
from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox

async def main():
    sandbox = BubblewrapSandbox()
    for argv in (["true"], ["sh", "-c", "sleep 300 &"], ["sleep", "300"]):
        command = Command(session_id="s", argv=argv, workspace=Workspace(sys.argv[1]), limits=SandboxLimits(wall_s=2))
        print((await sandbox.run(command, lambda stream, data: None)).exit_code)
    print(sorted(path.read_text().strip() for path in pathlib.Path("/proc").glob("[0-9]*/comm")))

asyncio.run(main())
"""


@only_root
def test_a_process_that_is_the_first_of_its_container_is_left_no_dead_ones(workspace):
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*unshare, any_python(), "-c", FIRST, str(workspace)],
        capture_output=True,
        text=True,
        env=environment(),
    )
    *codes, left = done.stdout.splitlines()
    assert (codes, done.stderr) == (["0", "0", "137"], "")
    python, guard = ast.literal_eval(left)
    assert (python.startswith("python"), guard) == (True, "sh")


@only_root
async def test_no_control_group_is_left(sandbox, workspace):
    await sandbox.run(_command(workspace, "true"), Said())
    prefix = f"{cgroups.PREFIX}{os.getpid()}-*"
    assert _found(Path("/sys/fs/cgroup"), prefix) == []


async def test_no_descriptor_is_left(sandbox, workspace):
    async def run() -> None:
        with contextlib.suppress(CodeSDKError):
            await sandbox.run(_command(workspace, "true"), Said())
            await sandbox.run(_command(workspace, "true", cwd="missing"), Said())

    await run()
    before = _found(Path("/proc/self/fd"), "*")
    await run()
    assert _found(Path("/proc/self/fd"), "*") == before


def _found(place: Path, pattern: str) -> list[Path]:
    return list(place.rglob(pattern))


# --- whom it runs as


async def _uid(sandbox: BubblewrapSandbox, workspace: Path) -> int:
    said = Said()
    await sandbox.run(_command(workspace, "sh", "-c", "touch made; id -u"), said)
    assert (workspace / "made").stat().st_uid == int(said.out)
    return int(said.out)


@only_root
async def test_root_runs_commands_as_the_owner_of_the_workspace(sandbox, workspace):
    _give(workspace, owner=User(ORDINARY, ORDINARY))
    assert await _uid(sandbox, workspace) == ORDINARY


@only_root
async def test_a_workspace_of_root_is_refused_in_words_until_somebody_else_has_it(sandbox, workspace):
    _give(workspace, owner=User(0, 0))
    with pytest.raises(InvalidRequest, match="belongs to root, and commands never run as root"):
        await sandbox.run(_command(workspace, "touch", "ran"), Said())
    assert (await sandbox.run(_command(workspace, "ls", writable=False), Said())).exit_code == 0
    assert list(workspace.iterdir()) == []


@only_root
async def test_a_workspace_of_root_is_given_away_if_the_operator_says_so(workspace):
    outside = workspace.parent / "outside"
    outside.write_text("root's")
    (workspace / "sub").mkdir()
    (workspace / "sub" / "file").write_text("x")
    (workspace / "link").symlink_to(outside)
    os.link(outside, workspace / "twin")
    _give(workspace, owner=User(0, 0))
    assert await _uid(BubblewrapSandbox(give_workspace=True), workspace) == SANDBOX_USER.uid
    owners = {path.name: path.lstat().st_uid for path in workspace.rglob("*")}
    uid = SANDBOX_USER.uid
    assert owners == {"sub": uid, "file": uid, "made": uid, "link": uid, "twin": 0}
    assert outside.stat().st_uid == 0


@only_root
async def test_a_directory_that_the_user_cannot_pass_is_named(sandbox, workspace):
    workspace.parent.chmod(0o700)
    with pytest.raises(InvalidRequest, match=f"may not pass {workspace.parent} on the way"):
        await sandbox.run(_command(workspace, "true"), Said())


@only_root
async def test_it_refuses_to_run_as_root(workspace):
    _give(workspace, owner=User(0, 0))
    found = await BubblewrapSandbox(user=User(0, 0)).capabilities()
    assert (found.available, found.notes) == (
        False,
        ["Commands never run as root; name another user for the sandbox."],
    )


# --- what the workspace keeps


async def test_36_a_file_with_a_name_outside_cannot_be_changed_under_any_name(sandbox, workspace):
    outside = workspace.parent / "outside"
    outside.write_text("before")
    (workspace / "sub").mkdir()
    os.link(outside, workspace / "sub" / "twin")
    (workspace / "one").write_text("inside")
    os.link(workspace / "one", workspace / "two")
    _give(outside, workspace / "sub", workspace / "one")
    try_all = """
for path in sys.argv[2:]:
    attempt(write, path)
    attempt(os.unlink, path)
    attempt(os.link, path, "again")
"""
    said = Said()
    await sandbox.run(_command(workspace, *_python(try_all, "sub/twin")), said)
    await sandbox.run(_command(workspace, "mv", "sub", "elsewhere"), said)
    await sandbox.run(_command(workspace, *_python(try_all, "elsewhere/twin")), said)
    await sandbox.run(_command(workspace, *_python("attempt(write, 'one')")), said)
    assert said.out.decode().split() == ["EROFS", "EBUSY", "EXDEV", "EROFS", "EBUSY", "EXDEV", "REACHED"]
    assert (outside.read_text(), (workspace / "two").read_text()) == ("before", "changed")


async def test_36_many_of_them_refuse_the_command_unless_the_operator_allows_them(workspace):
    outside = workspace.parent / "outside"
    outside.mkdir()
    for number in range(70):
        (outside / str(number)).write_text("before")
        _give(outside / str(number))
        os.link(outside / str(number), workspace / str(number))
    with pytest.raises(InvalidRequest, match=r"70 files of the workspace have other names outside it"):
        await BubblewrapSandbox().run(_command(workspace, "true"), Said())
    allowed = BubblewrapSandbox(hard_links="allow")
    await allowed.run(_command(workspace, "sh", "-c", "echo after > 7"), Said())
    assert (outside / "7").read_text() == "after\n"


async def test_a_data_directory_in_the_workspace_is_empty_for_commands_wherever_it_is_moved(
    sandbox, workspace
):
    data = workspace / "sub" / ".codesdk"
    data.mkdir(parents=True)
    (data / "codesdk.db").write_text("every session")
    _give(workspace / "sub", data, data / "codesdk.db")
    said = Said()
    await sandbox.run(
        _command(workspace, "sh", "-c", "ls -A sub/.codesdk; touch sub/.codesdk/x; mv sub moved"), said
    )
    await sandbox.run(_command(workspace, "sh", "-c", "ls -A moved/.codesdk; echo end"), said)
    assert said.out == b"end\n"
    assert b"Read-only file system" in said.err


async def test_a_data_directory_that_was_moved_out_of_sight_closes_the_workspace(sandbox, workspace):
    data = workspace / "sub" / ".codesdk"
    data.mkdir(parents=True)
    (data / "codesdk.db").write_text("every session")
    _give(workspace / "sub", data, data / "codesdk.db")
    hide = """
top, name = os.open(".", os.O_RDONLY), "d" * 200
for _ in range(25):
    os.mkdir(name)
    os.chdir(name)
os.rename("sub", "sub", src_dir_fd=top)
"""
    assert (await sandbox.run(_command(workspace, *_python(hide)), Said())).exit_code == 0
    with pytest.raises(InvalidRequest, match="moved to a place in the workspace that cannot be read"):
        await sandbox.run(_command(workspace, "true"), Said())


async def test_the_data_directory_itself_is_no_workspace(sandbox, workspace):
    (workspace / "codesdk.db").touch()
    with pytest.raises(InvalidRequest, match="own data directory"):
        await sandbox.run(_command(workspace, "true"), Said())


async def test_a_repository_that_a_command_makes_is_its_own_until_the_session_ends(sandbox, workspace):
    make = _command(workspace, "git", "init", "-q")
    change = _command(workspace, "touch", ".git/hooks/new")
    assert [(await sandbox.run(each, Said())).exit_code for each in (make, change)] == [0, 0]
    await sandbox.close_session("s")
    said = Said()
    assert (await sandbox.run(_command(workspace, "touch", ".git/hooks/newer"), said)).exit_code == 1
    assert b"Read-only file system" in said.err


async def test_a_repository_behind_a_link_is_refused(sandbox, workspace):
    (workspace / "repository").mkdir()
    (workspace / ".git").symlink_to("repository")
    with pytest.raises(InvalidRequest, match="symbolic link, which cannot be protected"):
        await sandbox.run(_command(workspace, "true"), Said())


async def test_more_of_the_host_can_be_made_readable(workspace):
    tools = workspace.parent / "tools"
    tools.mkdir()
    (tools / "tool").write_text("a tool")
    said = Said()
    sandbox = BubblewrapSandbox(readable=[str(tools)])
    await sandbox.run(_command(workspace, "sh", "-c", f"cat {tools}/tool; touch {tools}/x"), said)
    assert said.out == b"a tool"
    assert b"Read-only file system" in said.err
