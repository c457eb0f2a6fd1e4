"""The attack table on the container sandbox: driven by root, and by an ordinary user who may use the engine's socket.

A rootless engine cannot be had here (no sub-uids), so the ordinary user talks to the one that root started.
"""

from collections.abc import Generator
from typing import Any, Literal

import msgspec
import pytest
from tests.sandbox import attacks
from tests.sandbox.attacks import ATTACKS, MB, PRELUDE, SECRET, Attack
from tests.sandbox.driver import ORDINARY, Job, Report
from tests.sandbox.oci.driver import drive
from tests.sandbox.oci.engine import RunningEngine
from tests.sandbox.ran import run
from tests.sandbox.stage import Stage, open_directory, set_stage

from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command, SandboxLimits
from codesdk.sandbox.oci import config as oci_config
from codesdk.sandbox.oci.sandbox import OciSandbox
from codesdk.sandbox.owner import SANDBOX_USER, User

Who = Literal["root", "ordinary"]
OWNERS: dict[Who, User] = {"root": SANDBOX_USER, "ordinary": User(ORDINARY, ORDINARY)}


def _name(attack: Attack) -> str:
    return f"{attack.row}: {attack.name}"


@pytest.fixture(scope="module", params=OWNERS)
def reports(request: pytest.FixtureRequest, engine: RunningEngine) -> Generator[dict[str, Report]]:
    """All attacks, run by one process of root or of somebody else."""
    with open_directory() as root, set_stage(root, OWNERS[request.param]) as stage:
        jobs = [
            Job(
                _name(attack),
                Command(
                    session_id="ses_1",
                    argv=[*attack.argv, stage.argument()],
                    workspace=Workspace(str(stage.workspace)),
                    limits=attack.limits,
                ),
            )
            for attack in ATTACKS
        ]
        uid = ORDINARY if request.param == "ordinary" else None
        yield drive(jobs, engine.socket, uid=uid, env={"CODESDK_TEST_TOKEN": SECRET})
    assert engine.containers() == []


@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_an_attack_gets_no_further_than_the_table_says(attack: Attack, reports: dict[str, Report]):
    assert reports[_name(attack)] == Report(words=list(attack.expected["oci"]), exit_code=0)


@pytest.fixture
def stage() -> Generator[Stage]:
    with open_directory() as root, set_stage(root, SANDBOX_USER) as stage:
        yield stage


def program(text: str, stage: Stage, *, limits: SandboxLimits | None = None, **told: Any) -> Command:
    return Command(
        session_id="ses_1",
        argv=["/usr/bin/python3", "-I", "-c", PRELUDE + text, stage.argument(**told)],
        workspace=Workspace(str(stage.workspace)),
        limits=limits or SandboxLimits(wall_s=60),
    )


UNFILTERED = [
    attack
    for attack in ATTACKS
    if "seccomp" in attack.without and attack.without["seccomp"] != attack.expected["oci"]
]
IN_CONTAINERS = {
    16: ("EPERM",),  # refused without the filter too, by something else
    30: ("REACHED", "EPERM"),  # no limit on namespaces as bubblewrap sets one: the first step succeeds
}
"""What attacks come to without the filter where that is not what they come to in bubblewrap."""


@pytest.mark.parametrize("attack", UNFILTERED, ids=_name)
async def test_without_the_filter_the_attack_succeeds_but_for_one_that_is_refused_twice(
    attack: Attack,
    containers: OciSandbox,
    engine: RunningEngine,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(oci_config, "seccomp_option", lambda podman: "unconfined")
    command = msgspec.structs.replace(program(attack.program, stage), session_id="ses_unfiltered")
    try:
        reached = (await run(containers, command)).words
        assert reached == IN_CONTAINERS.get(attack.row, attack.without["seccomp"])
        assert reached != attack.expected["oci"] or attack.row == 16
    finally:
        await containers.close_session("ses_unfiltered")
    assert engine.containers() == []


async def test_a_datagram_pair_which_could_be_connected_again_is_refused(sandbox, stage):
    text = """
attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_STREAM)
attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
"""
    assert (await run(sandbox, program(text, stage))).words == ("REACHED", "ENOSYS")


async def test_a_fork_bomb_meets_the_limit_of_processes(sandbox, stage):
    ran = await run(sandbox, program(attacks.FORK_BOMB, stage, limits=SandboxLimits(wall_s=60, processes=64)))
    assert (ran.words, ran.end.exit_code, ran.end.limits_hit) == (("EAGAIN", "few"), 0, ("processes",))


async def test_a_memory_bomb_meets_the_limit_of_memory(sandbox, stage):
    ran = await run(
        sandbox, program(attacks.MEMORY_BOMB, stage, limits=SandboxLimits(wall_s=60, memory_bytes=128 * MB))
    )
    assert (ran.end.exit_code, ran.end.limits_hit, ran.end.oom_kills) == (137, ("memory",), 1)


async def test_memory_is_limited_for_all_processes_together(sandbox, stage):
    ran = await run(
        sandbox,
        program(attacks.MEMORY_SHARED_OUT, stage, limits=SandboxLimits(wall_s=60, memory_bytes=256 * MB)),
    )
    assert ran.end.limits_hit == ("memory",)
    assert ran.end.oom_kills >= 1


@pytest.mark.parametrize("spin", [attacks.CPU_SPIN, attacks.CPU_SPIN_SHARED_OUT])
async def test_processor_time_is_limited_for_all_processes_together(sandbox, stage, spin):
    ran = await run(sandbox, program(spin, stage, limits=SandboxLimits(wall_s=120, cpu_s=1)))
    assert (ran.end.exit_code, ran.end.limits_hit) == (137, ("cpu",))


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
    assert (ran.end.exit_code, ran.end.limits_hit, ran.end.output_bytes) == (137, ("output",), 100_000)
