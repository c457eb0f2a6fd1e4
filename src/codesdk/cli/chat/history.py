"""Where the lines that were typed are kept: one file of the user's own, of bounded size."""

import os
from pathlib import Path

MAX_BYTES = 1_000_000
KEPT_BYTES = 500_000


def history_file() -> Path | None:
    """Return the file, cut to its newest part if it has grown; None if it cannot be written."""
    import platformdirs

    try:
        folder = platformdirs.user_state_path("codesdk")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "chat-history"
        if not path.exists():
            path.touch(mode=0o600)
        elif path.stat().st_size > MAX_BYTES:
            _cut(path)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) else None


def _cut(path: Path) -> None:
    """Keep the newest entries. Each begins with a line that names its time."""
    kept = path.read_bytes()[-KEPT_BYTES:]
    _, found, rest = kept.partition(b"\n# ")
    other = path.with_name(f"{path.name}.{os.getpid()}")
    other.touch(mode=0o600)
    other.write_bytes(b"\n# " + rest if found else b"")
    other.replace(path)
