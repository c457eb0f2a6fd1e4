"""Changing files beneath a directory: all or nothing, nothing outside, nothing of anyone else's."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.files.test_paths import ATTACKS
from tests.sandbox.traps import SECRET, set_traps, tree

from codesdk.contract.workspace import Workspace
from codesdk.sandbox.files import batch as module, kernel
from codesdk.sandbox.files.batch import Batch, Written
from codesdk.sandbox.files.paths import Beneath, Changed, Opened, PathRefused

SAME = Opened(b"inside\n", 0o644, (0, 0), 1)
IS_THERE = "is there already; read it first"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return set_traps(tmp_path)


@pytest.fixture(params=["exchange", "link"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with the calls of Linux, and with what is done where they are not known."""
    if request.param == "link":
        monkeypatch.setattr(kernel, "_renameat2", lambda: None)
    return request.param


def commit(root: Path, *changes: tuple[str, str], before: Opened | None = None, **options: Any) -> bool:
    """Make changes: `replace` and `remove` files as they are or as `before` says, `create` new ones."""
    with Beneath(Workspace(str(root))) as files, Batch(files) as batch:
        for kind, path in changes:
            if kind == "create":
                batch.write(path, None, b"new\n", **options)
            elif kind == "remove":
                batch.remove(path, before or files.read(path, 1000))
            else:
                batch.write(path, before or files.read(path, 1000), b"mine\n", **options)
        return batch.commit()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


CREATED_AT = {  # paths that no file is at, so that one can be made
    "missing.txt",
    "missing/x",
    "..\\secret.txt",
    "~/x",
    "a.txt\n",
}


@pytest.mark.parametrize(("path", "reason"), ATTACKS.items(), ids=[ascii(path)[:40] for path in ATTACKS])
@pytest.mark.slow
def test_a_path_that_leads_elsewhere_is_refused_for_every_change(root, path, reason):
    before = tree(root.parent)
    for change in ("replace", "remove"):
        with pytest.raises(PathRefused) as caught:
            commit(root, (change, path), before=SAME)
        assert str(caught.value) == reason
    if path not in CREATED_AT:
        with pytest.raises(PathRefused) as caught:
            commit(root, ("create", path))
        assert str(caught.value) in (reason, f"{path} {IS_THERE}", f"{path.split('/')[0]} {IS_THERE}")
    assert tree(root.parent) == before


@pytest.mark.parametrize("path", sorted(CREATED_AT))
def test_a_new_file_appears_with_its_folders_and_never_in_place_of_another(root, path):
    with Beneath(Workspace(str(root))) as files, Batch(files) as batch:
        assert batch.write(path, None, b"new\n") == Written(b"new\n", 0o644, path.count("/"))
        assert batch.commit()
    assert (root / path).read_bytes() == b"new\n"
    with pytest.raises(Changed, match=IS_THERE):
        commit(root, ("create", path))
    assert (root / path).read_bytes() == b"new\n"
    assert not [name for name in tree(root) if name.endswith(".tmp")]


@pytest.mark.parametrize(
    "path",
    [".git", ".git/config", ".git/hooks/pre-commit", "sub/.git/hooks/x", ".GIT/config", "a/.Git", "./.git/x"],
)
def test_what_belongs_to_git_is_not_written(root, path):
    (root / ".git").mkdir()
    (root / ".git" / "config").write_bytes(b"inside\n")
    before = tree(root)
    for change in ("create", "replace", "remove"):
        with pytest.raises(PathRefused, match="belongs to git"):
            commit(root, (change, path), before=SAME)
    assert tree(root) == before
    assert commit(root, ("create", ".gitignore"))


def test_a_file_with_other_names_is_neither_replaced_nor_removed(root):
    before = tree(root.parent)
    for change in ("replace", "remove"):
        with pytest.raises(PathRefused, match=r"hard\.txt has other names \(hard links\)"):
            commit(root, (change, "hard.txt"))
    assert tree(root.parent) == before


def test_a_file_is_replaced_with_its_mode_kept_and_nothing_left_behind(root):
    path = root / "sub" / "deep" / "b.txt"
    path.chmod(0o4751)
    inode = path.stat().st_ino
    with Beneath(Workspace(str(root))) as files, Batch(files) as batch:
        assert batch.write("sub/deep/b.txt", files.read("sub/deep/b.txt", 1000), b"new\n") == Written(
            b"new\n", 0o751
        )
        assert batch.commit()
    assert path.read_bytes() == b"new\n"
    assert mode_of(path) == 0o751
    assert path.stat().st_ino != inode
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]


def test_modes_follow_the_umask_or_what_was_asked_for(root):
    old = os.umask(0o027)
    try:
        commit(root, ("create", "plain"))
        commit(root, ("create", "program"), executable=True)
        commit(root, ("create", "exact"), mode=0o7606)
    finally:
        os.umask(old)
    assert [mode_of(root / name) for name in ("plain", "program", "exact")] == [0o640, 0o750, 0o606]
    commit(root, ("replace", "plain"), executable=True)
    commit(root, ("replace", "program"), executable=False)
    assert [mode_of(root / name) for name in ("plain", "program")] == [0o750, 0o640]


def test_what_is_new_belongs_to_whom_the_directory_belongs_to(root):
    """Where root works in somebody's workspace, they must be able to go on with it."""
    if os.geteuid() == 0:
        os.chown(root / "sub", 61_100, 61_101)
    owner = (root / "sub").stat()
    commit(root, ("create", "sub/new/deep/x.txt"), ("create", "sub/y.txt"))
    for path in ("sub/new", "sub/new/deep", "sub/new/deep/x.txt", "sub/y.txt"):
        info = (root / path).stat()
        assert (info.st_uid, info.st_gid) == (owner.st_uid, owner.st_gid)


@pytest.mark.parametrize("other", [b"else\n", b"", b"longer than before\n"])
@pytest.mark.parametrize("change", ["write", "remove"])
def test_a_file_that_someone_else_changed_is_left_alone(root, other, change):
    with Beneath(Workspace(str(root))) as files, Batch(files) as batch:
        before = files.read("a.txt", 1000)
        batch.remove("a.txt", before) if change == "remove" else batch.write("a.txt", before, b"mine\n")
        (root / "a.txt").write_bytes(other)
        with pytest.raises(Changed, match=r"a\.txt was changed by someone else meanwhile; read it again"):
            batch.commit()
    assert (root / "a.txt").read_bytes() == other
    assert not [name for name in tree(root) if name.endswith(".tmp")]


def test_a_change_in_the_last_moment_is_seen_and_put_back(root, monkeypatch):
    """Between the last look and the change there is a moment; what was there is looked at once more after it."""
    real = module._place

    def late(step: Any) -> None:
        if step.name == "a.txt":
            (root / "a.txt").unlink()
            (root / "a.txt").write_bytes(b"in the last moment\n")
        real(step)

    monkeypatch.setattr(module, "_place", late)
    for change in ("replace", "remove"):
        with pytest.raises(Changed):
            commit(root, ("create", "new.txt"), (change, "a.txt"))
        assert (root / "a.txt").read_bytes() == b"in the last moment\n"
        assert not (root / "new.txt").exists()
        (root / "a.txt").write_bytes(b"inside\n")
    assert not [name for name in tree(root) if name.endswith(".tmp")]


def test_a_file_that_turned_into_a_link_is_left_alone(root):
    with Beneath(Workspace(str(root))) as files, Batch(files) as batch:
        batch.write("a.txt", files.read("a.txt", 1000), b"mine\n")
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to(root.parent / "secret.txt")
        with pytest.raises(PathRefused, match=r"a\.txt is a symbolic link"):
            batch.commit()
    assert (root.parent / "secret.txt").read_bytes() == SECRET
    assert (root / "a.txt").is_symlink()


def test_a_batch_that_may_not_go_on_or_is_not_committed_changes_nothing(root):
    before = tree(root)
    for go_on in (False, None):
        with Beneath(Workspace(str(root))) as files, Batch(files) as batch:
            batch.write("a.txt", files.read("a.txt", 1000), b"mine\n")
            batch.write("x/y/z.txt", None, b"mine\n")
            batch.remove("sub/deep/b.txt", files.read("sub/deep/b.txt", 1000))
            assert tree(root) != before  # what is prepared lies beside
            if go_on is not None:
                assert batch.commit(lambda: False) is False
        assert tree(root) == before


def test_several_changes_are_made_together(root):
    assert commit(root, ("replace", "a.txt"), ("create", "x/y/z.txt"), ("remove", "sub/deep/b.txt"))
    now = tree(root)
    assert (now["a.txt"], now["x/y/z.txt"]) == (b"mine\n", b"new\n")
    assert "sub/deep/b.txt" not in now
    assert not [name for name in now if name.endswith(".tmp")]


@pytest.mark.parametrize("failing", range(4))
def test_whichever_change_fails_the_others_are_put_back(root, monkeypatch, failing):
    before, real, calls = tree(root), module._place, 0

    def fail(step: Any) -> None:
        nonlocal calls
        if calls == failing:
            raise OSError(28, "No space left on device")
        calls += 1
        real(step)

    monkeypatch.setattr(module, "_place", fail)
    with pytest.raises(PathRefused, match="the disk is full"):
        commit(root, ("replace", "a.txt"), ("create", "x/y/z"), ("remove", "sub/deep/b.txt"), ("create", "z"))
    assert calls == failing
    assert tree(root) == before


def test_what_cannot_be_put_back_is_named(root, monkeypatch):
    monkeypatch.setattr(module, "_take_back", lambda step: os.unlink("gone", dir_fd=step.directory))
    with pytest.raises(PathRefused) as caught:
        commit(root, ("replace", "a.txt"), ("create", "link.txt"))
    assert str(caught.value) == "it failed half way, and these could not be put back: a.txt"


def test_no_descriptor_stays_open(root):
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for path in [*ATTACKS, "a.txt", "sub/deep/b.txt"]:
        for change in ("create", "replace", "remove"):
            with contextlib.suppress(PathRefused):
                commit(root, (change, path), before=SAME)
    assert count() == before
