"""The attack table on the container sandbox: driven by root, and by an ordinary user who may use the engine's socket.

A rootless engine cannot be had here (no sub-uids), so the ordinary user talks to the one that root started.
"""

import asyncio
import os
import pickle
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox import attacks
from tests.sandbox.attacks import ATTACKS, MB, PRELUDE, Attack
from tests.sandbox.engine import IMAGE
from tests.sandbox.ran import run
from tests.sandbox.stage import Stage, set_stage

from codesdk.sandbox.backend import Command, SandboxLimits
from codesdk.sandbox.oci import OciSandbox

SANDBOX_USER = (10_001, 10_001)
ORDINARY_USER = (12_345, 12_345)
# There is no terminal to type into; and its filter cannot look at a part of an argument.
EXPECTED = {"type into the terminal of whoever started it": ("ENXIO", "ENOTTY", "ENOTTY")}
# A datagram pair is connected to its other end, but not for good.
DATAGRAM_PAIR = """
pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
say("stream pair")
attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
"""


def program(text: str, stage: Stage, *, limits: SandboxLimits | None = None, **told: Any) -> Command:
    return Command(
        session_id="ses_1",
        argv=["/usr/bin/python3", "-I", "-c", PRELUDE + text, stage.argument(**told)],
        workspace=str(stage.workspace),
        limits=limits or SandboxLimits(wall_s=60),
    )


def expected(attack: Attack) -> tuple[str, ...]:
    return EXPECTED.get(attack.name, attack.expected["oci"])


async def attempt(sandbox: OciSandbox, attack: Attack, stage: Stage) -> tuple[str, ...]:
    command = Command(
        session_id="ses_1",
        argv=[*attack.argv, stage.argument()],
        workspace=str(stage.workspace),
        limits=attack.limits,
    )
    ran = await run(sandbox, command)
    assert ran.errors == ""
    return ran.words


@pytest.fixture
def stage(tmp_path: Path):
    with set_stage(tmp_path, SANDBOX_USER) as stage:
        yield stage


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.row} {attack.name}")
async def test_an_attack_is_stopped(sandbox, stage, attack, monkeypatch):
    monkeypatch.setenv("A_SECRET", attacks.SECRET)
    assert await attempt(sandbox, attack, stage) == expected(attack)


async def test_a_pair_of_sockets_cannot_be_connected_anew(sandbox, stage):
    ran = await run(sandbox, program(DATAGRAM_PAIR, stage))
    assert ran.words == ("stream pair", "ENOSYS")


def as_user(user: tuple[int, int], work: Callable[[], Awaitable[Any]]) -> Any:
    """Do some work in a process of another user, and return what it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])
            result = asyncio.run(work())  # type: ignore[arg-type]
        except BaseException as error:
            result = repr(error)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pickle.load(pipe)
    os.waitpid(child, 0)
    return result


def test_an_ordinary_user_gets_the_same(engine, monkeypatch):
    monkeypatch.setenv("A_SECRET", attacks.SECRET)

    async def all_of_them(stages: list[Stage]) -> dict[str, tuple[str, ...]]:
        sandbox = OciSandbox(IMAGE, engine=engine.socket)
        try:
            return {
                attack.name: await attempt(sandbox, attack, stage)
                for attack, stage in zip(ATTACKS, stages, strict=True)
            }
        finally:
            await sandbox.close()

    with ExitStack() as held:
        # Not in pytest's directory, which is closed to other users.
        home = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="oci-")))
        home.chmod(0o755)
        stages: list[Stage] = []
        for number in range(len(ATTACKS)):
            (home / str(number)).mkdir()
            stages.append(held.enter_context(set_stage(home / str(number), ORDINARY_USER)))
        found = as_user(ORDINARY_USER, lambda: all_of_them(stages))
    assert found == {attack.name: expected(attack) for attack in ATTACKS}


async def test_a_fork_bomb_meets_the_limit_of_processes(sandbox, stage):
    ran = await run(sandbox, program(attacks.FORK_BOMB, stage, limits=SandboxLimits(wall_s=60, processes=64)))
    assert (ran.words, ran.end.exit_code, ran.end.limits_hit) == (("EAGAIN", "few"), 0, ["processes"])


async def test_a_memory_bomb_meets_the_limit_of_memory(sandbox, stage):
    ran = await run(
        sandbox, program(attacks.MEMORY_BOMB, stage, limits=SandboxLimits(wall_s=60, memory_bytes=128 * MB))
    )
    assert (ran.end.exit_code, ran.end.limits_hit, ran.end.oom_kills) == (137, ["memory"], 1)


async def test_memory_is_limited_for_all_processes_together(sandbox, stage):
    ran = await run(
        sandbox,
        program(attacks.MEMORY_SHARED_OUT, stage, limits=SandboxLimits(wall_s=60, memory_bytes=256 * MB)),
    )
    assert ran.end.limits_hit == ["memory"]
    assert ran.end.oom_kills >= 1


@pytest.mark.parametrize("spin", [attacks.CPU_SPIN, attacks.CPU_SPIN_SHARED_OUT])
async def test_processor_time_is_limited_for_all_processes_together(sandbox, stage, spin):
    ran = await run(sandbox, program(spin, stage, limits=SandboxLimits(wall_s=120, cpu_s=1)))
    assert (ran.end.exit_code, ran.end.limits_hit) == (137, ["cpu"])


@pytest.mark.parametrize("path", ["/tmp/fill", "/run/fill", "/var/tmp/fill", "/dev/shm/fill"])
async def test_scratch_space_ends(sandbox, stage, path):
    limits = SandboxLimits(wall_s=60, scratch_bytes=16 * MB)
    ran = await run(sandbox, program(attacks.FILL, stage, limits=limits, path=path, size=20 * MB))
    assert ran.words == ("ENOSPC",)


async def test_there_is_no_other_place_to_write(sandbox, stage):
    found = """
for root, folders, _ in os.walk("/"):
    if root == "/proc" or root.startswith("/workspace/"):
        folders.clear()
    if os.access(root, os.W_OK):
        say(root)
"""
    ran = await run(sandbox, program(found, stage))
    assert set(ran.words) - {"/dev/mqueue"} == {"/tmp", "/run", "/var/tmp", "/dev/shm", "/workspace"}


async def test_a_file_ends_at_its_limit(sandbox, stage):
    limits = SandboxLimits(wall_s=60, file_bytes=4 * MB)
    ran = await run(sandbox, program(attacks.FILL, stage, limits=limits, path="fill", size=8 * MB))
    assert ran.words == ("EFBIG",)
    assert (stage.workspace / "fill").stat().st_size == 4 * MB


async def test_a_flood_of_output_is_cut_and_ended(sandbox, stage):
    ran = await run(
        sandbox, program(attacks.FLOOD, stage, limits=SandboxLimits(wall_s=60, output_bytes=100_000))
    )
    assert (ran.end.exit_code, ran.end.limits_hit, ran.end.output_bytes) == (137, ["output"], 100_000)
