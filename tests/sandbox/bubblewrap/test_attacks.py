"""The attacks of `attacks.py` on bubblewrap, started by root and by somebody without rights; and without a defence."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from tests.sandbox import attacks
from tests.sandbox.attacks import ATTACKS, SECRET, Attack, Defence, Words
from tests.sandbox.driver import ORDINARY, Job, Report, Reports, drive, identity
from tests.sandbox.stage import Stage, open_directory, set_stage

from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command, SandboxLimits
from codesdk.sandbox.bubblewrap.confinement import Confinement, Descriptors, arguments, limited
from codesdk.sandbox.bubblewrap.seccomp import compile_filter
from codesdk.sandbox.owner import SANDBOX_USER, User

Who = Literal["root", "ordinary"]
IS_ROOT = os.geteuid() == 0
WHO: list[Who] = ["root", "ordinary"] if IS_ROOT else ["ordinary"]


def _name(attack: Attack) -> str:
    return f"{attack.row}: {attack.name}"


def _owner(who: Who) -> User:
    if not IS_ROOT:
        return User(os.geteuid(), os.getegid())
    return SANDBOX_USER if who == "root" else User(ORDINARY, ORDINARY)


@pytest.fixture(scope="module", params=WHO)
def reports(request: pytest.FixtureRequest) -> Generator[Reports]:
    """All attacks, run by one process of root or of somebody else."""
    owner = _owner(request.param)
    with open_directory() as root, set_stage(root, owner) as stage:
        jobs = [
            Job(
                _name(attack),
                Command(
                    session_id="s",
                    argv=[*attack.argv, stage.argument()],
                    workspace=Workspace(str(stage.workspace)),
                    limits=attack.limits,
                ),
            )
            for attack in ATTACKS
        ]
        uid = None if request.param == "root" or not IS_ROOT else ORDINARY
        yield drive(jobs, uid=uid, env={"CODESDK_TEST_TOKEN": SECRET})


@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_an_attack_gets_no_further_than_the_table_says(attack: Attack, reports: Reports):
    assert reports.jobs[_name(attack)] == Report(words=list(attack.expected["bubblewrap"]), exit_code=0)


class Bare(NamedTuple):
    """Bubblewrap as the sandbox would start it, but for one thing."""

    stage: Stage
    owner: User

    def start(
        self,
        argv: list[str],
        *,
        without: Defence | None = None,
        drop: tuple[str, ...] = (),
        limits: SandboxLimits = SandboxLimits(),  # noqa: B008 - frozen
        output: Any = subprocess.PIPE,
    ) -> "subprocess.Popen[str]":
        fds = Descriptors()
        workspace = fds.keep(os.open(self.stage.workspace, os.O_PATH))
        git = fds.keep(os.open(self.stage.workspace / ".git", os.O_PATH))
        confinement = Confinement(
            user=self.owner,
            workspace=workspace,
            writable=True,
            cwd=".",
            env={},
            limits=limits,
            git=None if without == "protected_git" else git,
        )
        options = arguments(confinement, None if without == "seccomp" else compile_filter(), fds)
        for option in drop:
            options = f" {' '.join(options)} ".replace(f" {option} ", " ").split()
        argv = limited(argv, limits, count_processes=True, bound_memory=False)
        as_whom: dict[str, Any] = {} if without == "drop_root" or not IS_ROOT else identity(self.owner.uid)
        try:
            return subprocess.Popen(
                ["/usr/bin/bwrap", *options, "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=fds.held,
                cwd="/",
                env={"CODESDK_TEST_TOKEN": SECRET} if without == "empty_env" else {},
                text=True,
                **as_whom,
            )
        finally:
            fds.close()

    def words(self, program: str, told: str, **how: Any) -> Words:
        """Run a program to its end and return what it printed."""
        with self.start(["/usr/bin/python3", "-I", "-c", attacks.PRELUDE + program, told], **how) as process:
            assert process.stdout is not None
            return tuple(process.stdout.read().split())


@pytest.fixture
def bare() -> Generator[Bare]:
    owner = _owner("ordinary")
    with open_directory() as root, set_stage(root, owner) as stage:
        yield Bare(stage, owner)


UNDEFENDED = [(attack, defence) for attack in ATTACKS for defence in attack.without]


@pytest.mark.parametrize(
    ("attack", "defence"),
    UNDEFENDED,
    ids=[f"{_name(attack)} without {defence}" for attack, defence in UNDEFENDED],
)
def test_without_its_defence_an_attack_gets_further(attack: Attack, defence: Defence, bare: Bare):
    if defence == "drop_root" and not IS_ROOT:
        pytest.skip("there is no root to drop")
    with bare.start([*attack.argv, bare.stage.argument()], without=defence) as process:
        assert process.stdout is not None
        # Read only as much as is expected: what holds the sandbox's first process never ends by itself.
        words = tuple(process.stdout.readline().strip() for _ in attack.without[defence])
        process.kill()
    assert words == attack.without[defence]


@pytest.mark.skipif(not IS_ROOT, reason="only root has what is given up here")
def test_as_root_without_a_cover_the_kernel_can_be_told_what_to_run(bare: Bare):
    # The file is opened for writing and closed again; nothing is written.
    words = bare.words(
        "attempt(touch, '/proc/sys/kernel/core_pattern')",
        "{}",
        without="drop_root",
        drop=("--ro-bind /proc/sys /proc/sys",),
    )
    assert words == ("REACHED",)


@pytest.mark.skipif(not IS_ROOT, reason="only root has what is given up here")
def test_as_root_the_number_of_processes_has_no_limit_but_that_of_a_control_group(bare: Bare):
    limits = SandboxLimits(processes=40)
    assert bare.words(attacks.FORK_BOMB, "{}", limits=limits) == ("EAGAIN", "few")
    assert bare.words(attacks.FORK_BOMB, "{}", without="drop_root", limits=limits) == ("REACHED",)


def test_a_writable_dev_has_no_size(bare: Bare):
    told = bare.stage.argument(path="/dev/file", size=48 * attacks.MB)
    limits = SandboxLimits(scratch_bytes=16 * attacks.MB)
    assert bare.words(attacks.FILL, told, limits=limits) == ("EROFS",)
    assert bare.words(attacks.FILL, told, limits=limits, drop=("--remount-ro /dev",)) == ("REACHED",)


def test_output_to_a_file_of_the_host_could_be_read_and_changed(bare: Bare, tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(SECRET)
    log.chmod(0o666)
    program = attacks.PRELUDE + "held = read('/proc/self/fd/1'); write('/proc/self/fd/1', held[::-1])"
    with log.open("a") as output:
        bare.start(["/usr/bin/python3", "-I", "-c", program], output=output).wait()
    assert log.read_text() == SECRET[::-1]
