"""`SplitBlobs`: small contents as rows of the database, large ones as files. Implements the `Blobs` port.

A row is committed before anything that refers to it, and needs no disk flush of its own. A file must be on
disk before it is named, which takes some milliseconds: worth it for contents that would bloat the write-ahead
log. Small contents that an earlier version kept in files are still found there.
"""

import sqlite3

from codesdk.contract.canonical import content_hash as hash_of
from codesdk.contract.ports import Blobs
from codesdk.store.age import age_time
from codesdk.store.blobs import Keep, checked
from codesdk.store.sqlite import reading
from codesdk.store.sqlite.database import Database
from codesdk.store.sqlite.tables import Tables

SMALL_BYTES = 128 * 1024
_SWEEP_PAGE = 500


class SplitBlobs:
    """`Blobs` in a database and in files. Hashing runs in their threads."""

    def __init__(self, database: Database, files: Blobs) -> None:
        self._database = database
        self._files = files

    async def put(self, data: bytes) -> str:
        """Store bytes and return their content hash. If already stored, only mark them as fresh."""
        if len(data) > SMALL_BYTES:
            return await self._files.put(data)

        def store(tables: Tables) -> str:
            name = hash_of(data)
            tables.put_blob(name, data, age_time())
            return name

        # Not flushed by itself: the commit that names it comes later, and takes this one to disk.
        return await self._database.change(store, durable=False)

    async def get(self, content_hash: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes, checked against their hash, or the range [start, end), which cannot be checked."""
        found = await self._database.ask(_read, content_hash, start, end)
        return await self._files.get(content_hash, start, end) if found is None else found

    async def has(self, content_hash: str) -> bool:
        """Return whether the bytes are stored."""
        found = await self._database.ask(reading.blob, content_hash, 0, 0)
        return found is not None or await self._files.has(content_hash)

    async def sweep(self, keep: Keep, older_than_s: float) -> int:
        """Remove older blobs that `keep` does not return, and leftovers of broken writes."""
        limit = age_time() - older_than_s
        removed = place = 0
        while page := await self._database.ask(reading.old_blobs, place, limit, _SWEEP_PAGE):
            place = page[-1][0]
            kept = await keep([name for _, name in page])
            gone = [number for number, name in page if name not in kept]
            removed += await self._drop(gone, limit)
        return removed + await self._files.sweep(keep, older_than_s)

    async def _drop(self, places: list[int], limit: float) -> int:
        if not places:
            return 0
        return await self._database.change(lambda tables: tables.drop_blobs(places, limit))


def _read(db: sqlite3.Connection, content_hash: str, start: int, end: int | None) -> tuple[bytes | None, int]:
    found, rows = reading.blob(db, content_hash, start, end)
    if found is not None and start <= 0 and end is None:
        checked(content_hash, found)
    return found, rows
