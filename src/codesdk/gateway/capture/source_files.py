"""Where runtimes look for instructions → the files that are there, by label: candidates for implicit sources.

Read without following links and within bounds. A file that is not among them is still listed when it reaches a
model, as the runtime's.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

MAX_FILES = 256
MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 4
MAX_ENTRIES = 5_000
_NAMES = frozenset(
    {
        "agents.md",
        "agents.override.md",
        "agent.md",
        "claude.md",
        "claude.local.md",
        "gemini.md",
        "skill.md",
        "memory.md",
        ".cursorrules",
        "copilot-instructions.md",
        "opencode.md",
        "context.md",
    }
)
_FOLDERS = frozenset({".claude", ".codex", ".gemini", ".opencode", ".agents", ".cursor", ".github"})
_SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})


def read_sources(workspace: str, folders: Mapping[str, str]) -> dict[str, bytes]:
    """Return the candidates in a workspace and in a runtime's own folders. Blocking; must not raise."""
    found: dict[str, bytes] = {}
    for label, root in {"workspace": workspace, **folders}.items():
        candidates = _candidates(Path(root), MAX_DEPTH, label != "workspace", [MAX_ENTRIES])
        for path in islice(candidates, MAX_FILES):
            data = _read(path)
            if data:
                found[f"{label}/{path.relative_to(root).as_posix()}"] = data
    return found


def _candidates(folder: Path, depth: int, inside: bool, left: list[int]) -> Iterator[Path]:
    """Yield files by their names; inside a runtime's folder, every Markdown file. `left` is how many may be looked at."""
    try:
        with os.scandir(folder) as listing:
            entries = sorted(islice(listing, left[0]), key=lambda entry: (entry.is_dir(), entry.name))
    except OSError:
        return
    left[0] -= len(entries)
    for entry in entries:
        name = entry.name.lower()
        if entry.is_file(follow_symlinks=False):
            if name in _NAMES or (inside and name.endswith((".md", ".mdc"))):
                yield Path(entry.path)
        elif depth and entry.is_dir(follow_symlinks=False) and _is_entered(name, inside):
            yield from _candidates(Path(entry.path), depth - 1, inside or name in _FOLDERS, left)


def _is_entered(name: str, inside: bool) -> bool:
    return name not in _SKIPPED and (inside or name in _FOLDERS or not name.startswith("."))


def _read(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        return os.read(fd, MAX_FILE_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)
