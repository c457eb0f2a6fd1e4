"""What can be typed next: commands and their arguments after a slash, files of the workspace after an @."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from codesdk.cli.chat.marks import theirs

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation

MAX_SHOWN = 50
MAX_VISITED = 5_000
"""So many entries of a large workspace are looked at for one completion."""
_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", ".codesdk"})
_AT = re.compile(r'(?:^|\s)@("?)([^\s"]*)$')


class ChatCompleter(Completer):
    """Completes what is before the cursor. Without a conversation there are only files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.talk: Conversation | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what fits."""
        before = document.text_before_cursor
        if before.startswith("/") and "\n" not in before:
            return self._commands(before)
        found = _AT.search(before)
        return [] if found is None else self._files(found.group(2), found.group(1))

    def _commands(self, before: str) -> Iterator[Completion]:
        if self.talk is None:
            return
        from codesdk.cli.chat.commands import arguments_of, summaries

        name, space, typed = before.partition(" ")
        if not space:
            for known, meaning in summaries(self.talk).items():
                if known.startswith(name[1:]):
                    yield Completion(
                        f"/{known} ", -len(before), display=f"/{known}", display_meta=theirs(meaning)
                    )
            return
        for value in arguments_of(name[1:], self.talk):
            if value.startswith(typed):
                yield Completion(value, -len(typed))

    def _files(self, typed: str, quote: str) -> Iterator[Completion]:
        root = self._root if self.talk is None else Path(self.talk.workspace)
        for path in matching_files(root, typed):
            text = f'"{path}"' if " " in path or quote else path
            yield Completion(text, -len(typed) - len(quote), display=theirs(path))


def matching_files(root: Path, typed: str) -> list[str]:
    """Return the files below a directory whose path contains what was typed, those that begin with it first."""
    if typed.startswith(("/", "~")):
        return _outside(typed)
    wanted = typed.lower()
    found = [path for path in _walk(root) if wanted in path.lower()]
    found.sort(key=lambda path: (not path.lower().startswith(wanted), path.count("/"), path))
    return found[:MAX_SHOWN]


def _walk(root: Path) -> Iterator[str]:
    """Yield files, none of them a link: those cannot be attached. Whatever is looked at counts, so that folders end, too."""
    visited = 0
    ahead = [""]
    while ahead:
        folder = ahead.pop()
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    visited += 1
                    if visited > MAX_VISITED:
                        break
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders += [] if entry.name in _SKIPPED else [path]
                    elif entry.is_file(follow_symlinks=False) and theirs(path) == path:
                        files.append(path)  # a name that cannot be shown cannot be chosen
        except OSError:
            continue
        yield from sorted(files)
        if visited > MAX_VISITED:
            return
        ahead += sorted(folders, reverse=True)


def _outside(typed: str) -> list[str]:
    folder, _, start = typed.rpartition("/")
    try:
        entries = sorted(Path(f"{folder}/").expanduser().iterdir())
    except OSError:
        return []
    names = [
        entry.name + ("/" if entry.is_dir() else "") for entry in entries if entry.name.startswith(start)
    ]
    return [f"{folder}/{name}" for name in names if theirs(name) == name][:MAX_SHOWN]
