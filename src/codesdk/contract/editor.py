"""The files of a workspace as the editor has them that started a task: a port for tools on files.

An editor may have changes that are not saved. A tool asks for them, and gives the editor the new text of a file
that it changed.
"""

from typing import Protocol


class EditorFiles(Protocol):
    """One editor. Paths are relative to the workspace and have been checked. Must not raise, and has a deadline."""

    @property
    def takes(self) -> bool:
        """Whether the editor can be given a new text."""
        ...

    async def text_of(self, path: str) -> str | None:
        """Return a file as the editor has it, saved or not; None if it does not say."""
        ...

    async def take(self, path: str, text: str) -> bool:
        """Give the editor a file's new text, which is on disk already. Return whether it took it."""
        ...
