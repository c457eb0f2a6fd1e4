"""Files beneath a directory: what opens, what is refused, and that nothing outside is ever touched."""

import contextlib
import errno
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.sandbox.traps import set_traps

from codesdk.contract.workspace import Workspace
from codesdk.local.directory import DATABASE
from codesdk.sandbox.files import paths
from codesdk.sandbox.files.kernel import Unsupported, open_beneath
from codesdk.sandbox.files.paths import Beneath, PathRefused, TooLarge, identify, split


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return set_traps(tmp_path)


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with the kernel's own resolution, and with the walk that stands in for it."""
    if request.param == "walk":
        monkeypatch.setattr(paths, "open_beneath", unsupported)
    return request.param


def unsupported(*_: object) -> int:
    raise Unsupported


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
    "byte \udc80": "the path contains characters that no file name can have",
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
    with Beneath(Workspace(str(root))) as files, pytest.raises(PathRefused) as caught:
        files.read(path, 1000)
    assert str(caught.value) == reason


def test_a_socket_and_a_device_are_refused(root, monkeypatch):
    monkeypatch.chdir(root)  # the address of a socket may be no longer than about 100 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with (
            Beneath(Workspace(".")) as files,
            pytest.raises(PathRefused, match="socket is not a regular file"),
        ):
            files.read("socket", 1000)
    with Beneath(Workspace("/dev")) as files, pytest.raises(PathRefused, match="null is not a regular file"):
        files.read("null", 1000)


def test_ordinary_paths_open_in_every_spelling(root):
    with Beneath(Workspace(str(root))) as files:
        for path in ("sub/deep/b.txt", "./sub//deep/./b.txt"):
            assert files.read(path, 1000).data == b"deep\n"


@pytest.mark.parametrize("path", ["alias", "up/workspace"])
def test_no_link_is_followed_on_the_way_to_the_workspace(root, tmp_path, path):
    (tmp_path / "alias").symlink_to(root)
    (tmp_path / "up").symlink_to(tmp_path)
    link = path.partition("/")[0]
    with pytest.raises(PathRefused, match=f"cannot be opened: {link} is a symbolic link"):
        Beneath(Workspace(str(tmp_path / path)))


def test_only_the_directory_that_was_found_is_opened(root):
    """Whoever can write beside a workspace can put another directory in its place."""
    found = identify(Workspace(str(root)))
    with Beneath(found) as files:
        assert files.read("a.txt", 1000).data == b"inside\n"
    root.rename(root.parent / "before")
    root.mkdir()
    with pytest.raises(PathRefused, match="replaced by another directory; put it back"):
        Beneath(found)
    root.rmdir()
    (root.parent / "before").rename(root)
    assert identify(found) == found


@pytest.mark.parametrize("path", ["missing", "workspace/a.txt", "\0"])
def test_a_workspace_that_is_no_directory_is_refused(root, path):
    with pytest.raises(PathRefused, match="the workspace cannot be opened"):
        Beneath(Workspace(str(root.parent / path)))


def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(root):
    with Beneath(Workspace(str(root))) as files:
        assert files.read("a.txt", 7).data == b"inside\n"
        with pytest.raises(TooLarge, match=r"a\.txt has 7 bytes; files over 6 bytes are not opened"):
            files.read("a.txt", 6)


def test_no_descriptor_stays_open(root):
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for path in [*ATTACKS, "a.txt", "sub/deep/b.txt"]:
        with Beneath(Workspace(str(root))) as files, contextlib.suppress(PathRefused):
            files.read(path, 1000)
    assert count() == before


def test_this_kernel_resolves_paths_itself(root):
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        inside = open_beneath(fd, "sub/deep/b.txt", os.O_RDONLY)
        assert os.read(inside, 100) == b"deep\n"
        os.close(inside)
        refusals = {}
        for path in ("out/secret.txt", "link.txt", "inner.txt", "../secret.txt", "/etc/passwd", "missing"):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
                open_beneath(fd, path, os.O_RDONLY)
            refusals[path] = errno.errorcode[caught.value.errno or 0]
        assert refusals == {
            "out/secret.txt": "ELOOP",
            "link.txt": "ELOOP",
            "inner.txt": "ELOOP",
            "../secret.txt": "EXDEV",
            "/etc/passwd": "EXDEV",
            "missing": "ENOENT",
        }
        with pytest.raises(ValueError, match="NUL"):
            open_beneath(fd, "a.txt\0.png", os.O_RDONLY)
    finally:
        os.close(fd)


def test_a_directory_that_left_the_workspace_is_not_worked_in(root, monkeypatch):
    """What is opened may be moved away before it is used; looking back up shows it."""
    real = open_beneath

    def moved(directory: int, path: str, flags: int) -> int:
        fd = real(directory, path, flags)
        if path == "sub/deep":
            (root / "sub").rename(root.parent / "moved")
        return fd

    monkeypatch.setattr(paths, "open_beneath", moved)
    with (
        Beneath(Workspace(str(root))) as files,
        pytest.raises(PathRefused, match="was moved out of the workspace"),
    ):
        files.read("sub/deep/b.txt", 1000)


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
    with Beneath(Workspace(str(tmp_path))) as files:
        assert files.read("mine.txt", 100).data == b"mine"
        for path in (".codesdk/codesdk.db", ".codesdk/lock", ".codesdk/blobs/ab/cd"):
            with pytest.raises(PathRefused, match="closed to tools"):
                files.read(path, 100)
    with Beneath(Workspace(str(data))) as files, pytest.raises(PathRefused, match="closed to tools"):
        files.read("lock", 100)
