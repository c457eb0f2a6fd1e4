"""An arbiter, or a whole `codesdk wrap`, killed at a moment drawn by chance: its program ends, and ran only what was allowed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.channel.killed import TIMES, Death
from tests.channel.test_programs import command, gone
from tests.cli.shell import Shell
from tests.counts import COUNTS

POLICY = '[[rules]]\nid = "ok"\nresult = "allow"\ntool = "ok.*"\n'
CALLS = {"a": "ok.a", "b": "ok.b"}
SEED = 18


def deaths(count: int) -> list[Death]:
    """Draw them, half of them of a whole `codesdk wrap`."""
    chance = random.Random(SEED)
    drawn: list[Death] = []
    for number in range(count):
        moment = chance.choice(list(TIMES))
        drawn.append(
            Death(
                who="wrap" if number % 2 else "arbiter",
                moment=moment,
                nth=chance.randrange(TIMES[moment]),
                program=chance.choice(["walks", "outlives"]),
            )
        )
    return drawn


WAITING = Death(who="arbiter", moment="taken", nth=4, program="walks")
"""One that dies while a call of its program waits, as the programs of both kinds must bear it."""
ALWAYS = [WAITING, msgspec.structs.replace(WAITING, program="outlives")]


@pytest.mark.process
@pytest.mark.parametrize(
    "death",
    [*ALWAYS, *deaths(COUNTS.arbiter_kills)],
    ids=lambda death: "-".join(map(str, msgspec.structs.astuple(death))),
)
def test_a_program_whose_arbiter_is_killed_ends_and_ran_only_what_was_allowed(death: Death, tmp_path: Path):
    (tmp_path / "policy.toml").write_text(POLICY)
    argv = [sys.executable, "-m", "tests.channel.killed", msgspec.json.encode(death).decode(), str(tmp_path)]
    ran = subprocess.run(
        [*argv, *command(death.program, tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    if (tmp_path / "child").exists():
        leader = int((tmp_path / "child").read_text())
        for _ in range(2):  # the first look may miss one that is just being forked
            for process in group(leader):
                gone(process)
    allowed = [CALLS[name] for name in lines(tmp_path / "allowed")]
    executed = lines(tmp_path / "ran")
    assert executed == allowed[: len(executed)]
    if death.who == "wrap":
        shell = Shell(tmp_path)
        stored = shell.codesdk("sessions", "--json")
        if stored.code == 0 and stored.lines:
            assert shell.codesdk("verify", "last").code in (0, 7), "sound, or to be recovered"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def group(leader: int) -> list[int]:
    """Return the processes of a group."""
    found: list[int] = []
    for name in filter(str.isdigit, (path.name for path in Path("/proc").iterdir())):
        with contextlib.suppress(ProcessLookupError):
            found += [int(name)] if os.getpgid(int(name)) == leader else []
    return found
