"""What in a workspace a command must not change or see, found when a session first uses it.

Files with other names outside (hard links), and CodeSDK's data directories. A command cannot make either: it
cannot link to what it cannot reach. But it can rename, so the findings are checked again before each command.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import Command
from codesdk.sandbox.files.paths import DATA_MARK, PathRefused, open_without_links, open_workspace
from codesdk.sandbox.owner import User, give, require_access, user_for

MAX_SHIELDED = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_CLOEXEC
_NAMED = 5


class Found(NamedTuple):
    """A file or directory, and the inode that identifies it."""

    path: str
    inode: tuple[int, int]


class Survey(NamedTuple):
    """What was found. `linked` files have names outside; `covered` are data directories."""

    linked: Sequence[Found]
    covered: Sequence[Found]
    has_git: bool
    complete: bool
    """Whether every directory could be read."""

    def holds(self, workspace: int) -> bool:
        """Return whether all of it is still where it was."""
        return all(_inode(workspace, found.path) == found.inode for found in (*self.linked, *self.covered))


def survey(workspace: int, before: Survey | None = None, *, few_links: bool = True) -> Survey:
    """Search an open directory. Raise `InvalidRequest` if it cannot be used. Blocking; run it in a thread.

    `before` is the session's first survey: a repository that a command made since then is not protected, and
    a protected file that was moved out of sight makes this raise.
    """
    walk = _Walk(workspace)
    outside = walk.linked_outside()
    if few_links:
        _require_few(outside)
    found = Survey(
        outside, walk.covered, _has_git(workspace) if before is None else before.has_git, walk.complete
    )
    if before is not None and not found.complete:
        now = {each.inode for each in (*found.linked, *found.covered)}
        if any(each.inode not in now for each in (*before.linked, *before.covered)):
            raise InvalidRequest(
                "A file or directory that commands must not change was moved to a place in the workspace that "
                "cannot be read; move it back."
            )
    return found


class Workspaces:
    """Whom commands run as in the workspaces of sessions, and the survey of each: the first, while it holds."""

    def __init__(self, user: User, *, give_workspace: bool, protect_links: bool) -> None:
        self._user = user
        self._give = give_workspace
        self._links = protect_links
        self._surveys: dict[tuple[str, Workspace], Survey] = {}

    async def look(self, command: Command, place: int) -> tuple[User, Survey]:
        """Return both for a command, whose workspace is an open directory. Raise if it cannot run there."""
        user = user_for(os.fstat(place), self._user)
        key = (command.session_id, command.workspace)
        before = self._surveys.get(key)
        if before is None or not before.holds(place):
            found = await asyncio.to_thread(survey, place, before, few_links=self._links)
            # Once: what a command made since then is its user's already.
            if before is None and self._give and os.geteuid() == 0 and os.fstat(place).st_uid == 0:
                await asyncio.to_thread(give, place, user)
            self._surveys[key] = found
        require_access(os.fstat(place), user, writable=command.writable)
        return user, self._surveys[key]

    def forget(self, session_id: str) -> None:
        """Drop the surveys of a session."""
        self._surveys = {key: found for key, found in self._surveys.items() if key[0] != session_id}


def open_for_commands(workspace: Workspace) -> int:
    """Return a descriptor of a workspace, for the caller to close. Raise `InvalidRequest` if it cannot be used."""
    try:
        return open_workspace(workspace)
    except PathRefused as error:
        raise InvalidRequest(f"The command was not run: {error}.") from None


def open_found(workspace: int, found: Found) -> int:
    """Return a descriptor of what a survey found, for the caller to close.

    The way to it may lead elsewhere by now, so no link is followed, and what was opened is compared with what was found.
    """
    replaced = InvalidRequest(f"{found.path} was replaced while a command was about to start; try again.")
    try:
        fd = open_without_links(workspace, found.path, _PLACE)
    except OSError:
        raise replaced from None
    info = os.fstat(fd)
    if (info.st_dev, info.st_ino) != found.inode:
        os.close(fd)
        raise replaced
    return fd


class _Walk:
    """A walk over all directories, without following links."""

    def __init__(self, workspace: int) -> None:
        self._workspace = workspace
        self._linked: dict[tuple[int, int], tuple[int, list[str]]] = {}
        self.covered: list[Found] = []
        self.complete = True
        ahead = [""]
        while ahead:
            ahead += self._enter(ahead.pop())

    def linked_outside(self) -> list[Found]:
        """Return the files that have more names than were found here."""
        return [
            Found(path, inode)
            for inode, (names, paths) in self._linked.items()
            if len(paths) < names
            for path in paths
        ]

    def _enter(self, place: str) -> list[str]:
        """Look at the files of a directory and return the directories in it."""
        try:
            # From the top each time: a folder that becomes a link meanwhile is then not entered.
            fd = open_without_links(self._workspace, place or ".", _DIRECTORY)
        except OSError:
            self.complete = False
            return []
        try:
            with os.scandir(fd) as reading:
                entries = list(reading)
            if any(entry.name == DATA_MARK for entry in entries):
                self.covered.append(_cover(place, fd))
                return []
            return [
                f"{place}/{entry.name}".removeprefix("/") for entry in entries if self._look(place, entry)
            ]
        finally:
            os.close(fd)

    def _look(self, place: str, entry: "os.DirEntry[str]") -> bool:
        """Note a file with several names; return whether it is a directory to enter."""
        if entry.is_dir(follow_symlinks=False):
            return bool(place) or entry.name != ".git"  # a command cannot write there
        with contextlib.suppress(FileNotFoundError):
            info = entry.stat(follow_symlinks=False)
            if info.st_nlink > 1 and stat.S_ISREG(info.st_mode):
                names = self._linked.setdefault((info.st_dev, info.st_ino), (info.st_nlink, []))[1]
                names.append(f"{place}/{entry.name}".removeprefix("/"))
        return False


def _cover(place: str, fd: int) -> Found:
    if not place:
        raise InvalidRequest("The workspace is CodeSDK's own data directory; commands cannot run there.")
    info = os.fstat(fd)
    return Found(place, (info.st_dev, info.st_ino))


def _has_git(workspace: int) -> bool:
    try:
        mode = os.stat(".git", dir_fd=workspace, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        raise InvalidRequest(
            "The workspace's .git is a symbolic link, which cannot be protected from commands; "
            "put the repository itself there."
        )
    return True


def _require_few(linked: Sequence[Found]) -> None:
    if len(linked) <= MAX_SHIELDED:
        return
    some = ", ".join(found.path for found in linked[:_NAMED])
    raise InvalidRequest(
        f"{len(linked)} files of the workspace have other names outside it (hard links), so a command that changes "
        f"one would change files elsewhere: {some}, … Make copies of them (package managers that link have a copy mode: "
        "UV_LINK_MODE=copy, package-import-method=copy for pnpm), or open the sandbox with "
        'hard_links="allow".'
    )


def _inode(workspace: int, path: str) -> tuple[int, int] | None:
    try:
        fd = open_without_links(workspace, path, _PLACE)
    except OSError:
        return None
    try:
        info = os.fstat(fd)
    finally:
        os.close(fd)
    return info.st_dev, info.st_ino
