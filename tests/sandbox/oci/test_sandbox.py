"""The container sandbox against a real engine: how commands end, what is kept, what is refused, what never stays."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sandbox.attacks import DAEMON, PRELUDE, STAYS
from tests.sandbox.oci.engine import BARE_IMAGE, IMAGE, command_lines
from tests.sandbox.ran import run
from tests.sandbox.stage import open_directory

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import identify
from codesdk.sandbox.backend import Command, SandboxCapabilities, SandboxLimits, SandboxUnavailable
from codesdk.sandbox.oci import facts as oci_facts, owner as oci_owner
from codesdk.sandbox.oci.config import ContainerSpec, container_config, container_spec, seccomp_option
from codesdk.sandbox.oci.container import Container
from codesdk.sandbox.oci.engine import Engine
from codesdk.sandbox.oci.sandbox import OciSandbox
from codesdk.sandbox.owner import SANDBOX_USER, User
from codesdk.sandbox.survey import survey

PYTHON = ["/usr/bin/python3", "-I", "-c"]


@pytest.fixture
def workspace() -> Generator[Path]:
    """A workspace that belongs to the sandbox's user."""
    with open_directory() as root:
        path = root / "workspace"
        path.mkdir()
        give(path)
        yield path


def give(path: Path) -> None:
    os.chown(path, *SANDBOX_USER)


def spec_of(wanted: Command) -> ContainerSpec:
    place = os.open(wanted.workspace, os.O_PATH)
    try:
        return container_spec(wanted, place, SANDBOX_USER, survey(place), links=True)
    finally:
        os.close(place)


def sh(script: str, workspace: Path, **more: Any) -> Command:
    return command(["/bin/sh", "-c", script], workspace, **more)


def command(argv: list[str], workspace: Path, **more: Any) -> Command:
    more = {"session_id": "ses_1", "limits": SandboxLimits(wall_s=60)} | more
    return Command(argv=argv, workspace=Workspace(str(workspace)), **more)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.02)


def processes(word: str) -> list[int]:
    """Return the processes of this machine that have a word in their command line."""
    return [pid for pid, words in command_lines() if word in words]


async def test_both_streams_and_the_exit_code_come_back(sandbox, workspace):
    ran = await run(sandbox, sh("echo one; echo two >&2; exit 7", workspace))
    assert (ran.words, ran.errors) == (("one",), "two\n")
    assert msgspec.structs.replace(ran.end, duration_ms=0) == type(ran.end)(
        exit_code=7, duration_ms=0, output_bytes=8
    )


@pytest.mark.parametrize(
    ("argv", "code", "errors"),
    [
        (["true"], 0, ""),
        (["false"], 1, ""),
        (["/bin/sh", "-c", "kill -9 $$"], 137, ""),
        (["/bin/sh", "-c", "kill -15 $$"], 143, ""),
        (["no-such-program"], 127, "sh: exec: line 0: no-such-program: not found\n"),
        (["exit"], 127, "sh: exec: line 0: exit: not found\n"),
        (["/etc"], 126, "sh: exec: line 0: /etc: Permission denied\n"),
    ],
)
async def test_a_command_is_a_program_and_its_code_is_told(sandbox, workspace, argv, code, errors):
    ran = await run(sandbox, command(argv, workspace))
    assert (ran.end.exit_code, ran.errors) == (code, errors)


async def test_arguments_arrive_as_they_are(sandbox, workspace):
    argv = ["a b", "", "$HOME", "*", "'", "\n", "é", "-n"]
    ran = await run(
        sandbox, command([*PYTHON, "import json, sys; print(json.dumps(sys.argv[1:]))", *argv], workspace)
    )
    assert json.loads(ran.words[0]) == argv


async def test_bytes_come_as_they_are_and_all_of_them(sandbox, workspace):
    chunks: list[bytes] = []
    text = "import os\nfor n in range(4000): os.write(1, bytes(range(256)))"
    end = await sandbox.run(command([*PYTHON, text], workspace), lambda _, data: chunks.append(data))
    assert b"".join(chunks) == bytes(range(256)) * 4000
    assert end.output_bytes == 1_024_000


async def test_the_environment_is_what_was_given(sandbox, workspace, monkeypatch):
    monkeypatch.setenv("OUTSIDE", "x")
    ran = await run(sandbox, command(["env"], workspace, env={"GIVEN": "a b", "http_proxy": "given"}))
    found = dict(line.split("=", 1) for line in ran.words if not line.endswith("="))
    ours = {"HOME", "TMPDIR", "LANG", "GIVEN", "http_proxy", "PWD"}
    assert {name: value for name, value in found.items() if name in ours} == {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "GIVEN": "a b",
        "http_proxy": "given",
        "PWD": "/workspace",
    }
    assert found.keys() - ours <= {"PATH", "TERM", "SHLVL", "OLDPWD", "HOSTNAME", "container"}


async def test_files_are_made_in_the_workspace_as_its_owner(sandbox, workspace):
    (workspace / "sub").mkdir()
    give(workspace / "sub")
    ran = await run(sandbox, sh("pwd; echo new >file", workspace, cwd="sub"))
    made = workspace / "sub" / "file"
    assert (ran.words, made.read_text(), made.stat().st_uid) == (
        ("/workspace/sub",),
        "new\n",
        SANDBOX_USER.uid,
    )


async def test_a_directory_that_is_not_there_is_said(sandbox, workspace):
    ran = await run(sandbox, command(["pwd"], workspace, cwd="nowhere"))
    assert (ran.end.exit_code, ran.words, ran.errors) == (126, (), "cannot enter the directory\n")


async def test_a_directory_that_leads_out_leads_nowhere(sandbox, workspace):
    (workspace / "out").symlink_to("/proc/self/fd/7")
    (workspace / "up").symlink_to("/etc")
    assert (await run(sandbox, command(["pwd"], workspace, cwd="out"))).end.exit_code == 126
    assert (await run(sandbox, command(["ls", "shadow"], workspace, cwd="up"))).end.exit_code == 1


async def test_a_read_only_workspace_stays_as_it_is(sandbox, workspace):
    ran = await run(sandbox, sh("echo x >file", workspace, writable=False))
    assert (ran.end.exit_code, list(workspace.iterdir())) == (1, [])


async def test_a_session_keeps_its_container_for_the_next_command(sandbox, engine, workspace):
    await run(sandbox, sh("echo kept >/tmp/file", workspace))
    before = engine.containers()
    assert (await run(sandbox, sh("cat /tmp/file", workspace))).words == ("kept",)
    assert engine.containers() == before
    assert len(before) == 1


async def test_other_limits_or_rights_need_another_container(sandbox, engine, workspace):
    seen: set[str] = set()
    for more in (
        {},
        {"writable": False},
        {"limits": SandboxLimits(wall_s=60, memory_bytes=64 << 20)},
        {"limits": SandboxLimits(wall_s=60, processes=32)},
    ):
        await run(sandbox, command(["true"], workspace, **more))
        (container,) = engine.containers()
        seen.add(container)
    assert len(seen) == 4


async def test_sessions_do_not_share_a_container(sandbox, workspace):
    await run(sandbox, sh("echo mine >/tmp/file", workspace))
    other = await run(sandbox, sh("cat /tmp/file", workspace, session_id="ses_2"))
    await sandbox.close_session("ses_2")
    assert other.end.exit_code == 1


async def test_commands_of_a_session_run_side_by_side_and_one_container_is_kept(sandbox, engine, workspace):
    meet = "echo >>{mine}; while [ ! -e {other} ]; do sleep 0.1; done"
    await asyncio.gather(
        run(sandbox, sh(meet.format(mine="a", other="b"), workspace)),
        run(sandbox, sh(meet.format(mine="b", other="a"), workspace)),
    )
    assert len(engine.containers()) == 1


async def test_what_a_command_leaves_running_ends_with_it(sandbox, engine, workspace):
    ran = await run(sandbox, command([*PYTHON, PRELUDE + DAEMON + "# mark-left-running\n"], workspace))
    assert (ran.end.exit_code, processes("mark-left-running")) == (0, [])
    assert len(engine.containers()) == 1


async def test_a_command_that_kills_its_keeper_loses_its_container(sandbox, engine, workspace):
    before = await run(sandbox, command(["true"], workspace))
    first = engine.containers()
    # What it leaves must have spoken before the kill: afterwards nobody reads that, and it would end by itself.
    spoken = DAEMON.replace('say("daemon")', 'say("daemon"); os.write(told, b"x")')
    text = (
        PRELUDE
        + "import os, signal\nparent = os.getppid()\nheard, told = os.pipe()\n"
        + spoken
        + "os.wait(); os.read(heard, 1); os.kill(parent, 9) # mark-killer\n"
    )
    ran = await run(sandbox, command([*PYTHON, text], workspace))
    assert (before.end.exit_code, ran.end.exit_code, processes("mark-killer")) == (0, 137, [])
    assert first != engine.containers() == []


async def test_a_command_out_of_time_is_gone_with_all_it_started(sandbox, engine, workspace):
    text = PRELUDE + STAYS + "# mark-out-of-time\n"
    ran = await run(sandbox, command([*PYTHON, text], workspace, limits=SandboxLimits(wall_s=2)))
    assert (ran.end.exit_code, ran.end.limits_hit) == (137, ("wall",))
    assert (processes("mark-out-of-time"), engine.containers()) == ([], [])


async def test_a_cancelled_command_is_gone_with_all_it_started_before_the_cancellation_is_over(
    sandbox, engine, workspace
):
    started = asyncio.Event()
    text = PRELUDE + STAYS + "# mark-cancelled\n"
    task = asyncio.ensure_future(sandbox.run(command([*PYTHON, text], workspace), lambda *_: started.set()))
    await asyncio.wait_for(started.wait(), 60)
    assert processes("mark-cancelled")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (processes("mark-cancelled"), engine.containers()) == ([], [])


async def test_cancelling_while_the_container_starts_leaves_none(sandbox, engine, workspace, monkeypatch):
    """However often: a second time while the first cancellation waits for the container."""
    calls: asyncio.Queue[str] = asyncio.Queue()
    call = Engine.call

    async def watched(self: Engine, name: str, *args: Any, **options: Any) -> Any:
        calls.put_nowait(name)
        return await call(self, name, *args, **options)

    monkeypatch.setattr(Engine, "call", watched)
    task = asyncio.ensure_future(run(sandbox, command(["true"], workspace)))
    for awaited in ("create_container_from_config", "start", "kill"):
        while await asyncio.wait_for(calls.get(), 60) != awaited:
            pass
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.containers() == []


async def test_a_kept_container_that_somebody_killed_is_replaced(sandbox, engine, workspace):
    await run(sandbox, command(["true"], workspace))
    engine.kill(engine.containers()[0])
    await until(lambda: not engine.containers())
    assert (await run(sandbox, command(["true"], workspace))).end.exit_code == 0


async def test_a_command_whose_container_somebody_kills_ends_as_killed(sandbox, engine, workspace):
    started = asyncio.Event()
    running = asyncio.ensure_future(sandbox.run(sh("echo; sleep 1000", workspace), lambda *_: started.set()))
    await asyncio.wait_for(started.wait(), 60)
    engine.kill(engine.containers()[0])
    assert (await running).exit_code == 137


async def test_closing_ends_what_runs_and_what_is_kept(engine, workspace):
    sandbox = OciSandbox(IMAGE, engine=engine.socket)
    await run(sandbox, command(["true"], workspace, session_id="ses_2"))
    started = asyncio.Event()
    long = asyncio.ensure_future(sandbox.run(sh("echo; sleep 1000", workspace), lambda *_: started.set()))
    await asyncio.wait_for(started.wait(), 60)
    await sandbox.close()
    assert ((await long).exit_code, engine.containers()) == (137, [])
    with pytest.raises(SandboxUnavailable, match="is closed"):
        await run(sandbox, command(["true"], workspace))


OWNER = """
import asyncio, sys
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command, SandboxLimits
from codesdk.sandbox.oci.sandbox import OciSandbox

async def main():
    image, socket, workspace = sys.argv[1:]
    run = Command(session_id="ses_1", argv=["/bin/sh", "-c", "echo up; sleep 1000 # mark-orphan"],
                  workspace=Workspace(workspace), limits=SandboxLimits(wall_s=600))
    await OciSandbox(image, engine=socket).run(run, lambda *_: print("up", flush=True))

asyncio.run(main())
"""


async def test_nothing_outlives_a_killed_owner(engine, workspace):
    argv = [sys.executable, "-c", OWNER, IMAGE, engine.socket, str(workspace)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as owner:  # noqa: ASYNC220 - it is brief
        assert owner.stdout is not None
        assert await asyncio.to_thread(owner.stdout.readline) == b"up\n"
        inside = set(processes("mark-orphan")) - {owner.pid}
        owner.send_signal(signal.SIGKILL)
    await until(lambda: not engine.containers())
    assert inside
    assert processes("mark-orphan") == []


async def test_containers_of_dead_owners_are_removed_at_the_first_use(engine, workspace):
    spec = spec_of(command(["true"], workspace))
    mine = oci_owner.labels()
    dead = mine | {key: "1" for key in mine if key.endswith("born")}
    elsewhere = mine | {key: "other" for key in mine if key.endswith("pidns")}
    made = {
        name: engine.client.create_container_from_config(
            container_config(spec, image=IMAGE, podman=True, cpus=1, labels=labels)
        )["Id"]
        for name, labels in {"mine": mine, "dead": dead, "elsewhere": elsewhere, "stranger": {}}.items()
    }
    sandbox = OciSandbox(IMAGE, engine=engine.socket)
    await sandbox.capabilities()
    left = set(engine.containers())
    await sandbox.close()
    for container in left:
        engine.client.remove_container(container, force=True)
    assert left == {made[name] for name in ("mine", "elsewhere", "stranger")}


async def test_it_says_what_it_enforces(sandbox):
    assert await sandbox.capabilities() == SandboxCapabilities(
        backend="oci",
        available=True,
        execution_env="codesdk_docker",
        limits=frozenset(
            {"wall", "cpu", "memory", "processes", "file_size", "open_files", "output", "scratch"}
        ),
        filesystem=True,
        network=True,
        egress=False,
        syscalls=True,
    )


async def test_a_command_that_needs_hosts_is_refused(sandbox, workspace):
    with pytest.raises(SandboxUnavailable, match="cannot allow single hosts"):
        await run(sandbox, command(["true"], workspace, hosts=["example.com"]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"argv": []}, "The command is empty"),
        ({"argv": ["-c", "x"]}, "not with an option"),
        ({"argv": ["echo", "a\0b"]}, "NUL"),
        ({"cwd": "sub/../.."}, "must be inside the workspace"),
        ({"workspace": Workspace("/nowhere/at/all")}, "cannot be opened: nowhere does not exist"),
    ],
)
async def test_a_command_that_makes_no_sense_is_refused(sandbox, workspace, change, words):
    with pytest.raises(InvalidRequest, match=words):
        await run(sandbox, msgspec.structs.replace(command(["true"], workspace), **change))


async def test_a_limit_that_nobody_enforces_is_refused_if_it_is_required(engine, workspace, monkeypatch):
    monkeypatch.setattr(oci_facts, "visible", lambda: False)
    sandbox = OciSandbox(IMAGE, engine=engine.socket)
    with pytest.raises(SandboxUnavailable, match="The limit on cpu is required and cannot be enforced"):
        await run(sandbox, command(["true"], workspace, required=frozenset({"cpu"})))
    await sandbox.close()


async def test_a_missing_engine_is_said_with_what_to_do(tmp_path, workspace):
    sandbox = OciSandbox(IMAGE, engine=f"unix://{tmp_path}/none.sock")
    expected = f"There is no container engine at {tmp_path}/none.sock: start one with"
    found = await sandbox.capabilities()
    assert (found.available, found.limits, found.notes[0].startswith(expected)) == (False, frozenset(), True)
    with pytest.raises(SandboxUnavailable, match="There is no container engine"):
        await run(sandbox, command(["true"], workspace))


async def test_an_engine_on_another_machine_is_refused():
    found = await OciSandbox(IMAGE, engine="tcp://192.0.2.1:2375").capabilities()
    assert "must be on this machine" in found.notes[0]


async def test_an_engine_that_does_not_answer_is_said(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/dead.sock")
    found = await OciSandbox(IMAGE, engine=f"{tmp_path}/dead.sock").capabilities()
    assert (found.available, "does not answer" in found.notes[0]) == (False, True)


async def test_an_image_that_is_not_there_is_said(engine):
    sandbox = OciSandbox("nobody/nothing:1", engine=engine.socket)
    found = await sandbox.capabilities()
    assert "The image nobody/nothing:1 is not in the container engine" in found.notes[0]


async def test_an_image_without_a_shell_is_said(engine, workspace):
    sandbox = OciSandbox(BARE_IMAGE, engine=engine.socket)
    with pytest.raises(SandboxUnavailable, match="/bin/sh"):
        await run(sandbox, command(["true"], workspace))
    await sandbox.close()
    assert engine.containers() == []


async def test_commands_never_run_as_root(engine, workspace):
    os.chown(workspace, 0, 0)
    workspace.chmod(0o755)
    sandbox = OciSandbox(IMAGE, engine=engine.socket)
    with pytest.raises(InvalidRequest, match="commands never run as root"):
        await run(sandbox, command(["id"], workspace))
    ran = await run(sandbox, command(["id"], workspace, writable=False))
    await sandbox.close()
    assert ran.words == ("uid=61100 gid=61100",)
    with pytest.raises(SandboxUnavailable, match="never run as root"):
        await run(OciSandbox(IMAGE, engine=engine.socket, user=User(0, 0)), command(["id"], workspace))


async def test_a_workspace_of_root_can_be_given_away(engine, workspace):
    os.chown(workspace, 0, 0)
    (workspace / "file").write_text("x")
    sandbox = OciSandbox(IMAGE, engine=engine.socket, give_workspace=True)
    ran = await run(sandbox, sh("echo y >file; id -u", workspace))
    await sandbox.close()
    assert (ran.words, (workspace / "file").read_text()) == (("61100",), "y\n")


async def test_a_file_with_another_name_outside_stays_as_it_is(engine, workspace):
    outside = workspace.parent / "outside"
    outside.write_text("before\n")
    (workspace / "sub").mkdir()
    (workspace / "sub" / "linked").hardlink_to(outside)
    for path in (outside, workspace / "sub"):
        give(path)
    sandbox = OciSandbox(IMAGE, engine=engine.socket)
    ran = await run(sandbox, sh("echo after >sub/linked; cat sub/linked; mv sub/linked other", workspace))
    await sandbox.close()
    assert (ran.words, ran.end.exit_code, outside.read_text()) == (("before",), 1, "before\n")
    sandbox = OciSandbox(IMAGE, engine=engine.socket, hard_links="allow")
    await run(sandbox, sh("echo after >sub/linked", workspace))
    await sandbox.close()
    assert outside.read_text() == "after\n"


async def test_a_data_directory_is_not_to_be_seen(sandbox, workspace):
    (workspace / "data").mkdir()
    (workspace / "data" / "codesdk.db").write_text("secret")
    for path in (workspace / "data", workspace / "data" / "codesdk.db"):
        give(path)
    ran = await run(
        sandbox, sh("ls -A data; echo x >data/new; mv data elsewhere; cat data/codesdk.db", workspace)
    )
    assert (ran.words, ran.end.exit_code) == ((), 1)
    assert [path.name for path in (workspace / "data").iterdir()] == ["codesdk.db"]


async def test_what_was_swapped_before_it_was_mounted_is_noticed(engine, workspace, tmp_path):
    """A command of the same session may turn .git into a link between our look and the engine's."""
    (workspace / ".git").mkdir()
    spec = spec_of(command(["true"], workspace))
    (workspace / ".git").rmdir()
    (workspace / ".git").symlink_to("/etc")
    config = container_config(spec, image=IMAGE, podman=True, cpus=1, labels={})
    connected = Engine(engine.socket)
    await connected.connect()
    with pytest.raises(SandboxUnavailable, match="what it mounted is not the workspace"):
        await Container.start(connected, spec, config)
    connected.close()
    assert engine.containers() == []


def test_docker_is_given_the_profile_itself_and_podman_its_path():
    docker = json.loads(seccomp_option(podman=False))
    assert docker == json.loads(Path(seccomp_option(podman=True)).read_text())
    assert docker["defaultAction"] == "SCMP_ACT_ERRNO"


def test_the_profile_names_every_call_once_per_meaning():
    profile = json.loads(seccomp_option(podman=False))
    plain = [name for rule in profile["syscalls"] if "args" not in rule for name in rule["names"]]
    judged = {name for rule in profile["syscalls"] if "args" in rule for name in rule["names"]}
    assert len(plain) == len(set(plain))
    assert judged.isdisjoint(plain)  # a rule without conditions would win over those with some


@pytest.mark.parametrize("how", ["by a link", "by another directory"])
async def test_a_workspace_that_was_replaced_is_not_mounted(sandbox, engine, workspace, how):
    held = identify(Workspace(str(workspace)))
    wanted = msgspec.structs.replace(command(["true"], workspace), workspace=held)
    assert (await run(sandbox, wanted)).end.exit_code == 0
    before = engine.containers()
    replace(workspace, how)
    with pytest.raises(InvalidRequest, match="The command was not run: the workspace"):
        await run(sandbox, wanted)
    assert engine.containers() == before


def replace(workspace: Path, how: str) -> None:
    other = workspace.rename(workspace.parent / "before")
    if how == "by a link":
        workspace.symlink_to(other)
    else:
        workspace.mkdir()
