"""What a session's workspace means to a program: paths as subjects of a policy."""

from collections.abc import Iterable
from os.path import normpath
from pathlib import Path

from codesdk.contract.tools import Subjects


def touched(paths: Iterable[str], workspace: str) -> Subjects:
    """Return paths as rules name them: relative to the workspace if they are in it, else whole. Links are not resolved."""
    root = Path(workspace)
    whole = [Path(normpath(root / path)) for path in paths]
    return Subjects(
        paths=[str(path.relative_to(root) if path.is_relative_to(root) else path) for path in whole]
    )
