"""Places in a workspace that programs outside of the sandbox run or obey: how they look, and which ones changed.

A command cannot be kept from making them: to cover a name in a bind mount, it must exist on the host first. So
they are looked at before and after a command, and what changed is told. Blocking, but a few dozen `stat` calls.
"""

import contextlib
import os
import stat
from itertools import islice

from codesdk.contract.obeyed import OBEYED
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.files.kernel import Unsupported, open_beneath
from codesdk.sandbox.files.paths import PathRefused, open_without_links, open_workspace

MAX_ENTRIES = 256


class TriggerWatch:
    """The places as they look when it is made, before a command."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._before = _look_at_all(workspace)

    def warning(self) -> str | None:
        """Return what to tell people if places are new or look different by now."""
        now = _look_at_all(self._workspace)
        places = [place for place in now if now[place] != self._before.get(place)]
        if not places:
            return None
        programs = ", ".join(sorted({OBEYED[place] for place in places}))
        return (
            "Warning: while this ran, there was a change to what programs outside of the sandbox run or obey:"
            f" {', '.join(places)}. Look at it before {programs} is used in this workspace."
        )


def _look_at_all(workspace: Workspace) -> dict[str, object]:
    """Return how each place looks that is there; nothing if the workspace cannot be opened."""
    try:
        fd = open_workspace(workspace)
    except PathRefused:
        return {}
    try:
        looks = {place: _look(fd, place) for place in OBEYED}
    finally:
        os.close(fd)
    return {place: found for place, found in looks.items() if found}


def _look(workspace: int, place: str) -> object:
    """Return what changes with a place: when it was last changed is the kernel's word, which no command can set.

    Programs follow links, so those that stay in the workspace are followed, too. Of one that leads out only the link is
    looked at: what lies outside no command can change.
    """
    try:
        fd = _open(workspace, place)
    except FileNotFoundError:
        return None
    except OSError:
        return _link_on_the_way(workspace, place)
    try:
        if place.endswith("/"):
            return _listed(fd)
        info = os.fstat(fd)
        # A repository's directory changes with every git command, and none of that runs anything.
        return "directory" if stat.S_ISDIR(info.st_mode) else (info.st_ino, info.st_ctime_ns)
    except OSError:
        return None
    finally:
        os.close(fd)


def _open(workspace: int, place: str) -> int:
    path, flags = place.rstrip("/"), os.O_PATH | os.O_NOFOLLOW
    if place.endswith("/"):
        flags = os.O_RDONLY | os.O_DIRECTORY
    with contextlib.suppress(Unsupported):
        return open_beneath(workspace, path, flags, links=True)
    return open_without_links(workspace, path, flags)


def _link_on_the_way(workspace: int, place: str) -> object:
    """Return the first part of a place that is a link and leads nowhere that may be looked at; None if there is none."""
    parts = place.rstrip("/").split("/")
    for count in range(1, len(parts) + 1):
        try:
            fd = open_without_links(workspace, "/".join(parts[:count]), os.O_PATH)
        except OSError:
            return None
        try:
            info = os.fstat(fd)
        finally:
            os.close(fd)
        if stat.S_ISLNK(info.st_mode):
            return info.st_ino, info.st_ctime_ns
    return None


def _listed(fd: int) -> object:
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in islice(entries, MAX_ENTRIES)]
    return sorted((name, info.st_ino, info.st_ctime_ns) for name, info in found)
