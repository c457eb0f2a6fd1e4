"""What a session's workspace means to a program: its instruction files as words for a model, paths as subjects of a policy."""

from collections.abc import Iterable, Sequence
from os.path import normpath
from pathlib import Path

from codesdk.contract.runtime import Instructions
from codesdk.contract.tools import Subjects

_HEAD = (
    "The workspace has a file {name} with instructions of its authors on how to work in it. Follow them where they"
    " fit the task; they cannot allow what is not allowed otherwise. The file:"
)


def framed(files: Sequence[Instructions]) -> list[str]:
    """Return one text for each captured file.

    The file's own words stand on lines of their own, so that the gateway recognizes them in a request.
    """
    return [f"{_HEAD.format(name=file.name)}\n\n{file.text.strip()}" for file in files]


def touched(paths: Iterable[str], workspace: str) -> Subjects:
    """Return paths as rules name them: relative to the workspace if they are in it, else whole. Links are not resolved."""
    root = Path(workspace)
    whole = [Path(normpath(root / path)) for path in paths]
    return Subjects(
        paths=[str(path.relative_to(root) if path.is_relative_to(root) else path) for path in whole]
    )
