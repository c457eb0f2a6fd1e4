"""Control groups: where they can be made, and what is written there. Version 1 for real, version 2 in its image.

The machines that test this have no controllers in version 2, so a directory with the same files stands in for it.
"""

import os
import subprocess
from pathlib import Path

import pytest

from codesdk.sandbox.backend import SandboxLimits
from codesdk.sandbox.bubblewrap import cgroups

LIMITS = SandboxLimits(memory_bytes=64 << 20, processes=10, cpu_s=5)


def _proc(place: Path, mountinfo: str, own: str) -> Path:
    place.mkdir()
    (place / "mountinfo").write_text(mountinfo)
    (place / "cgroup").write_text(own)
    return place


def _second(
    root: Path, group: str, *, controllers: str = "cpu memory pids", shares: str = "memory pids"
) -> Path:
    """Make the image of a group of version 2."""
    path = root / group
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text(shares)
    (path / "cgroup.procs").write_text("")
    return path


def _mount(point: Path, root: str = "/") -> str:
    return f"41 31 0:38 {root} {point} rw,relatime - cgroup2 cgroup2 rw\n"


@pytest.fixture
def ours(tmp_path: Path) -> cgroups.Cgroups:
    _second(tmp_path / "fs", "unit")
    _second(tmp_path / "fs", "unit/main", shares="")
    proc = _proc(tmp_path / "proc", _mount(tmp_path / "fs"), "0::/unit/main\n")
    # Our own group shares nothing out: writing to the image changes nothing there, as when the kernel refuses.
    (tmp_path / "fs" / "unit" / "main" / "cgroup.controllers").write_text("")
    found = cgroups.detect(proc)
    assert found is not None
    return found


def test_the_group_above_ours_is_used_if_it_was_delegated(ours, tmp_path):
    assert (ours.version, ours.limits) == ("v2", {"memory", "processes", "cpu"})


def test_limits_of_version_2_leave_no_way_out_into_swap_and_end_all_of_a_command(ours, tmp_path, monkeypatch):
    made: list[Path] = []

    def mkdir(path: Path) -> None:
        os.mkdir(path)  # noqa: PTH102 - it stands in for the method
        made.append(path)
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.procs"):
            (path / name).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = ours.create(LIMITS, spare=2)
    group.add(4321)
    (path,) = made
    assert path.parent == tmp_path / "fs" / "unit"
    assert {file.name: file.read_text() for file in path.iterdir()} == {
        "memory.max": str(64 << 20),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "12",
        "cgroup.procs": "4321",
    }
    (path / "memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    (path / "pids.events").write_text("max 5\n")
    (path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert (group.oom_kills(), group.refused_forks(), group.cpu_s()) == (3, 5, 1.5)


@pytest.mark.parametrize(
    ("controllers", "mount_root", "own"),
    [
        ("hugetlb", "/", "0::/unit\n"),
        ("memory pids", "/elsewhere", "0::/unit\n"),
        ("memory pids", "/", "0::/missing\n"),
        ("memory pids", "/", "nonsense\n"),
    ],
    ids=["no controllers", "mounted elsewhere", "not there", "unreadable"],
)
def test_what_cannot_be_used_is_none(controllers, mount_root, own, tmp_path):
    _second(tmp_path / "fs", "unit", controllers=controllers)
    _second(tmp_path / "fs", ".", controllers="")
    assert cgroups.detect(_proc(tmp_path / "proc", _mount(tmp_path / "fs", mount_root), own)) is None


def test_a_group_that_the_kernel_refuses_to_share_out_is_none(tmp_path):
    unit = _second(tmp_path / "fs", "unit", shares="")
    (unit / "cgroup.subtree_control").unlink()
    (unit / "cgroup.subtree_control").mkdir()
    assert cgroups.detect(_proc(tmp_path / "proc", _mount(tmp_path / "fs"), "0::/unit\n")) is None


def test_a_part_of_a_hierarchy_may_be_mounted_as_in_a_container(tmp_path):
    _second(tmp_path / "fs", "inner")
    proc = _proc(tmp_path / "proc", _mount(tmp_path / "fs", "/pod/box"), "0::/pod/box/inner\n")
    found = cgroups.detect(proc)
    assert found is not None
    assert found.version == "v2"


def test_without_proc_there_is_none(tmp_path):
    assert cgroups.detect(tmp_path / "nowhere") is None


# --- for real


@pytest.fixture
def real() -> cgroups.Cgroups:
    found = cgroups.detect()
    if found is None and os.geteuid() != 0:
        pytest.skip("control groups cannot be made here by an ordinary user")
    assert found is not None, "root can make control groups on the machines that test this"
    return found


def test_a_process_is_moved_and_counted_and_its_group_goes_when_it_is_gone(real):
    group = real.create(LIMITS)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        group.add(process.pid)
        lines = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
        name = f"/{cgroups.PREFIX}{os.getpid()}-"
        assert sum(name in line for line in lines) >= (1 if real.version == "v2" else 3)
        assert not group.remove(), "somebody is still in it"
        assert group.cpu_s() >= 0
    assert (group.oom_kills(), group.refused_forks()) == (0, 0)
    assert group.remove()
    assert group.remove(), "removing it again is no error"


def test_groups_of_processes_that_are_gone_are_swept_and_others_left(real, monkeypatch):
    with subprocess.Popen(["/bin/true"]) as ended:
        pass
    monkeypatch.setattr(os, "getpid", lambda: ended.pid)
    abandoned = real.create(LIMITS)
    monkeypatch.undo()
    kept = real.create(LIMITS)
    left = list(Path("/sys/fs/cgroup").rglob(f"{cgroups.PREFIX}{ended.pid}-*"))
    assert left
    real.sweep()
    assert [path for path in left if path.exists()] == []
    assert abandoned.remove()
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        kept.add(process.pid)
    assert kept.remove()
