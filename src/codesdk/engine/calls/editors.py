"""Which editor's files the tools of a task may ask for: those of the editor that started it, as long as that is there.

By task, so that of several editors on a session one counts, and only one that may start tasks.
"""

from codesdk.contract.editor import EditorFiles


class Editors:
    """The editors of running tasks."""

    def __init__(self) -> None:
        self._lent: dict[str, EditorFiles] = {}

    def lend(self, task_id: str, files: EditorFiles) -> None:
        """Let the tools of a task ask an editor."""
        self._lent[task_id] = files

    def withdraw(self, task_id: str) -> None:
        """Stop letting them ask."""
        self._lent.pop(task_id, None)

    def of_task(self, task_id: str | None) -> EditorFiles | None:
        """Return the editor of a task, if it has one."""
        return None if task_id is None else self._lent.get(task_id)
