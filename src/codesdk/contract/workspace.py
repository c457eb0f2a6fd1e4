"""The directory that a session works in: its path, and which directory was found there.

A path alone says too little: whoever can write beside a workspace can put a link or another directory in its
place. `sandbox.Beneath` opens the directory that was found, or nothing.
"""

import msgspec


class Workspace(msgspec.Struct, frozen=True):
    """A directory on this machine. It can be used wherever a path can: `Path(workspace) / "notes.txt"`."""

    path: str
    """Absolute and with all links resolved: it is opened without following any."""
    identity: tuple[int, int] | None = None
    """Its device and inode, None before it was opened."""

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path
