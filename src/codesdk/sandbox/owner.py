"""The user that a command runs as: never root. See docs/decisions/0007-commands-never-run-as-root.md.

A process of an ordinary user runs commands as that user. A process of root runs them as the owner of the
workspace or, if that is root, as a reserved user; the operator decides whether that user gets the workspace.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from codesdk.contract.errors import InvalidRequest
from codesdk.sandbox.backend import SandboxUnavailable


class User(NamedTuple):
    """A user and a group, by number."""

    uid: int
    gid: int


SANDBOX_USER = User(61_100, 61_100)
"""A user who owns nothing: a number that neither distributions nor systemd assign."""


def user_for(workspace: os.stat_result, kept: User) -> User:
    """Return the user that a command in a workspace runs as. Never root."""
    if os.geteuid() != 0:
        user = User(os.geteuid(), os.getegid())
    elif workspace.st_uid != 0:
        # Not the group of root either: it may read what others may not.
        user = User(workspace.st_uid, workspace.st_gid or workspace.st_uid)
    else:
        user = kept
    if user.uid == 0 or (os.geteuid() == 0 and user.gid == 0):
        raise SandboxUnavailable("Commands never run as root; name another user for the sandbox.")
    return user


def require_access(workspace: os.stat_result, user: User, *, writable: bool) -> None:
    """Raise `InvalidRequest` if the user that we switch to cannot use the workspace."""
    if os.geteuid() != 0 or _permits(workspace, user, 0o7 if writable else 0o5):
        return
    act = "write to" if writable else "read"
    raise InvalidRequest(
        f"The workspace belongs to root, and commands never run as root: user {user.uid} cannot {act} it. "
        f"Give it to a user (chown -R {user.uid}:{user.gid}), "
        "or let CodeSDK do that by opening the sandbox with give_workspace."
    )


def unreachable(path: str, user: User) -> str | None:
    """Return the first directory on the way to a path that the user may not enter, or None."""
    place = Path("/")
    for part in Path(path).resolve().parts[1:]:
        if not _permits(Path(place).stat(), user, 0o1):
            return str(place)
        place /= part
    return None


def give(directory: int, user: User) -> None:
    """Give what root owns below an open directory to a user. Follows no links; skips hard-linked files."""
    for _, _, names, fd in os.fwalk(".", dir_fd=directory, follow_symlinks=False):
        _give_one(fd, ".", user)
        for name in names:
            _give_one(fd, name, user)


def _give_one(directory: int, name: str, user: User) -> None:
    info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if info.st_uid == 0 and (stat.S_ISDIR(info.st_mode) or info.st_nlink == 1):
        os.chown(name, *user, dir_fd=directory, follow_symlinks=False)


def _permits(info: os.stat_result, user: User, wanted: int) -> bool:
    if info.st_uid == user.uid:
        have = info.st_mode >> 6
    elif info.st_gid == user.gid:
        have = info.st_mode >> 3
    else:
        have = info.st_mode
    return have & wanted == wanted
