"""All that lies in a folder, to be searched: files, and the cells of databases, which pages may cut in two."""

import sqlite3
from pathlib import Path


def stored(root: Path) -> dict[str, bytes]:
    """Return the bytes of all files by their names, and of a database also its tables.

    Without sealed equipment, which is there to hold secrets.
    """
    found: dict[str, bytes] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.parent != root / "equipment":
            name = str(path.relative_to(root))
            found[name] = path.read_bytes()
            if found[name].startswith(b"SQLite format 3"):
                found |= _tables(path, name)
    return found


def everything(root: Path) -> bytes:
    """Return the same in one."""
    return b"\n".join(stored(root).values())


def _tables(path: Path, name: str) -> dict[str, bytes]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {f"{name} {table}": _cells(db, table) for table in tables}
    finally:
        db.close()


def _cells(db: sqlite3.Connection, table: str) -> bytes:
    rows = db.execute(f'SELECT * FROM "{table}"')
    return b"\n".join(cell if isinstance(cell, bytes) else str(cell).encode() for row in rows for cell in row)
