"""A workspace next to files that must stay out of reach, with every kind of trap inside."""

import os
from pathlib import Path

SECRET = b"outside\n"


def set_traps(home: Path) -> Path:
    """Make the workspace in a directory, and return it."""
    (home / "secret.txt").write_bytes(SECRET)
    (home / "outside").mkdir()
    (home / "outside" / "secret.txt").write_bytes(SECRET)
    root = home / "workspace"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"inside\n")
    (root / "sub" / "deep" / "b.txt").write_bytes(b"deep\n")
    (root / "link.txt").symlink_to(home / "secret.txt")
    (root / "relative.txt").symlink_to("../secret.txt")
    (root / "inner.txt").symlink_to("a.txt")
    (root / "dangling.txt").symlink_to("nowhere")
    (root / "loop.txt").symlink_to("loop.txt")
    (root / "out").symlink_to(home / "outside")
    (root / "in").symlink_to("sub")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "fifo")
    os.link(home / "secret.txt", root / "hard.txt")
    return root


def tree(root: Path) -> dict[str, bytes | str]:
    """Return every file and link below a directory: its content, or where it points."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
        elif path.is_dir():
            found[name] = "/"
    return found
