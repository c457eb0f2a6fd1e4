"""Files beneath a directory: what opens, what is refused, and that nothing outside is ever touched."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.paths import Beneath, Changed, Opened, PathRefused, TooLarge, split
from codesdk.store.directory import DATABASE

SECRET = b"outside\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace next to a file that must stay out of reach, with every kind of trap inside."""
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_bytes(SECRET)
    root = tmp_path / "workspace"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"inside\n")
    (root / "sub" / "deep" / "b.txt").write_bytes(b"deep\n")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "relative.txt").symlink_to("../secret.txt")
    (root / "inner.txt").symlink_to("a.txt")
    (root / "dangling.txt").symlink_to("nowhere")
    (root / "loop.txt").symlink_to("loop.txt")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "in").symlink_to("sub")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "fifo")
    os.link(tmp_path / "secret.txt", root / "hard.txt")
    return root


ATTACKS = {
    "": "the path is empty",
    "/etc/passwd": "the path is absolute; give it relative to the workspace",
    "//etc/passwd": "the path is absolute; give it relative to the workspace",
    "../secret.txt": 'the path contains ".."; it must stay inside the workspace',
    "sub/../../secret.txt": 'the path contains ".."; it must stay inside the workspace',
    "sub/../a.txt": 'the path contains ".."; it must stay inside the workspace',
    "a.txt/..": 'the path contains ".."; it must stay inside the workspace',
    "a.txt\0.png": "a path cannot contain a NUL character",
    "\ud800": "the path contains characters that no file name can have",
    "x" * 256: "the path is too long",
    "x/" * 2048 + "x": "the path is too long",
    ".": "the path names a directory, not a file",
    "./": "the path names a directory, not a file",
    "sub/": "the path names a directory, not a file",
    "sub/.": "the path names a directory, not a file",
    "a.txt/": "the path names a directory, not a file",
    "sub": "sub is a directory, not a file",
    "link.txt": "link.txt is a symbolic link; symbolic links are not followed",
    "relative.txt": "relative.txt is a symbolic link; symbolic links are not followed",
    "inner.txt": "inner.txt is a symbolic link; symbolic links are not followed",
    "dangling.txt": "dangling.txt is a symbolic link; symbolic links are not followed",
    "loop.txt": "loop.txt is a symbolic link; symbolic links are not followed",
    "out/secret.txt": "out is a symbolic link; symbolic links are not followed",
    "up/secret.txt": "up is a symbolic link; symbolic links are not followed",
    "in/deep/b.txt": "in is a symbolic link; symbolic links are not followed",
    "fifo": "fifo is not a regular file",
    "fifo/x": "fifo is not a directory",
    "a.txt/x": "a.txt is not a directory",
    "missing.txt": "missing.txt does not exist",
    "missing/x": "missing does not exist",
    "..\\secret.txt": "..\\secret.txt does not exist",
    "~/x": "~ does not exist",
    "a.txt\n": "a.txt\n does not exist",
}


@pytest.mark.parametrize(("path", "reason"), ATTACKS.items(), ids=[ascii(path)[:40] for path in ATTACKS])
def test_a_path_that_leads_elsewhere_is_refused_with_the_reason(root, path, reason):
    with Beneath(str(root)) as files, pytest.raises(PathRefused) as caught:
        files.read(path, 1000)
    assert str(caught.value) == reason
    same = Opened(b"inside\n", 0o644, (0, 0), 1)
    with Beneath(str(root)) as files, pytest.raises(PathRefused) as caught:
        files.replace(path, same, b"overwritten")
    assert str(caught.value) == reason
    assert (root.parent / "secret.txt").read_bytes() == SECRET
    assert (root / "a.txt").read_bytes() == b"inside\n"


def test_a_socket_and_a_device_are_refused(root, monkeypatch):
    monkeypatch.chdir(root)  # the address of a socket may be no longer than about 100 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with Beneath(".") as files, pytest.raises(PathRefused, match="socket is not a regular file"):
            files.read("socket", 1000)
    with Beneath("/dev") as files, pytest.raises(PathRefused, match="null is not a regular file"):
        files.read("null", 1000)


def test_ordinary_paths_open_in_every_spelling(root):
    with Beneath(str(root)) as files:
        for path in ("sub/deep/b.txt", "./sub//deep/./b.txt"):
            assert files.read(path, 1000).data == b"deep\n"


def test_the_workspace_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    with Beneath(str(tmp_path / "alias")) as files:
        assert files.read("a.txt", 1000).data == b"inside\n"


@pytest.mark.parametrize("path", ["missing", "workspace/a.txt", "\0"])
def test_a_workspace_that_is_no_directory_is_refused(root, path):
    with pytest.raises(PathRefused, match="the workspace directory cannot be opened"):
        Beneath(str(root.parent / path))


def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(root):
    with Beneath(str(root)) as files:
        assert files.read("a.txt", 7).data == b"inside\n"
        with pytest.raises(TooLarge, match=r"a\.txt has 7 bytes; files over 6 bytes are not opened"):
            files.read("a.txt", 6)


def test_a_hard_link_can_be_read_but_not_replaced(root):
    with Beneath(str(root)) as files:
        opened = files.read("hard.txt", 1000)
        assert (opened.data, opened.links) == (SECRET, 2)
        with pytest.raises(PathRefused, match=r"hard\.txt has other names \(hard links\)"):
            files.replace("hard.txt", opened, b"overwritten")
    assert (root.parent / "secret.txt").read_bytes() == SECRET


def test_a_file_is_replaced_with_its_mode_kept_and_nothing_left_behind(root):
    path = root / "sub" / "deep" / "b.txt"
    path.chmod(0o4751)
    inode = path.stat().st_ino
    with Beneath(str(root)) as files:
        before = files.read("sub/deep/b.txt", 1000)
        assert files.replace("sub/deep/b.txt", before, b"new\n") == b"new\n"
    assert path.read_bytes() == b"new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert path.stat().st_ino != inode
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]


@pytest.mark.parametrize("other", [b"else\n", b"", b"longer than before\n"])
def test_a_file_that_someone_else_changed_is_left_alone(root, other):
    with Beneath(str(root)) as files:
        before = files.read("a.txt", 1000)
        (root / "a.txt").write_bytes(other)
        with pytest.raises(Changed, match=r"a\.txt was changed by someone else meanwhile; read it again"):
            files.replace("a.txt", before, b"mine\n")
    assert (root / "a.txt").read_bytes() == other
    assert not [entry for entry in root.iterdir() if entry.name.endswith(".tmp")]


def test_a_file_that_turned_into_a_link_is_left_alone(root):
    with Beneath(str(root)) as files:
        before = files.read("a.txt", 1000)
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to(root.parent / "secret.txt")
        with pytest.raises(PathRefused, match=r"a\.txt is a symbolic link"):
            files.replace("a.txt", before, b"mine\n")
    assert (root.parent / "secret.txt").read_bytes() == SECRET
    assert (root / "a.txt").is_symlink()


def test_a_replacement_that_may_not_go_on_changes_nothing(root):
    with Beneath(str(root)) as files:
        before = files.read("a.txt", 1000)
        assert files.replace("a.txt", before, b"mine\n", lambda: False) is None
    assert (root / "a.txt").read_bytes() == b"inside\n"
    assert not [entry for entry in root.iterdir() if entry.name.endswith(".tmp")]


def test_no_descriptor_stays_open(root):
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for path in [*ATTACKS, "a.txt", "sub/deep/b.txt"]:
        with Beneath(str(root)) as files:
            try:
                files.replace(path, files.read(path, 1000), b"new\n")
            except PathRefused:
                pass
    assert count() == before


def test_a_directory_that_is_swapped_for_a_link_never_leads_outside(root):
    (root / "swap").mkdir()
    (root / "swap" / "secret.txt").write_bytes(b"inside\n")
    (root / "other").symlink_to(root.parent / "outside")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for a, b in (("swap", "spare"), ("other", "swap"), ("swap", "other"), ("spare", "swap")):
                (root / a).rename(root / b)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[bytes] = set()
    try:
        with Beneath(str(root)) as files:
            for _ in range(3_000):
                try:
                    seen.add(files.read("swap/secret.txt", 1000).data)
                except PathRefused:
                    pass
    finally:
        done.set()
        swapper.join()
    assert SECRET not in seen


@given(st.text(st.sampled_from("./a~\\\0é\n-"), max_size=12))
def test_what_passes_has_only_names_below_the_directory(path):
    try:
        parts = split(path)
    except PathRefused:
        return
    assert parts
    assert not path.startswith("/")
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\0" in part for part in parts)
    assert "/".join(parts) == os.path.normpath(path)


def test_a_data_directory_in_the_workspace_is_closed_to_tools(tmp_path: Path) -> None:
    data = tmp_path / ".codesdk"
    (data / "blobs" / "ab").mkdir(parents=True)
    (data / DATABASE).write_bytes(b"")
    (data / "lock").write_text("x")
    (data / "blobs" / "ab" / "cd").write_text("another session's words")
    (tmp_path / "mine.txt").write_text("mine")
    with Beneath(str(tmp_path)) as files:
        assert files.read("mine.txt", 100).data == b"mine"
        for path in (".codesdk/codesdk.db", ".codesdk/lock", ".codesdk/blobs/ab/cd"):
            with pytest.raises(PathRefused, match="closed to tools"):
                files.read(path, 100)
