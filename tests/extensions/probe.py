"""What extensions of tests say: they run in threads of their own and leave it here, or in processes, and leave a file."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

SEEN: list[Any] = []
"""What handlers noted, in order. The fixture `seen` empties it."""
_NOTED = threading.Condition()


def note(*words: Any) -> None:
    """Note something."""
    with _NOTED:
        SEEN.append(words[0] if len(words) == 1 else words)
        _NOTED.notify_all()


async def first() -> Any:
    """Wait until something was noted, and return it."""
    return (await noted(1))[0]


async def noted(count: int) -> list[Any]:
    """Wait until so much was noted, and return it."""
    return await asyncio.to_thread(_noted, count)


def _noted(count: int) -> list[Any]:
    with _NOTED:
        _NOTED.wait_for(lambda: len(SEEN) >= count)
        return list(SEEN)


def noting(path: str) -> Callable[[Any], None]:
    """Return a `note` for another process: what it is given must be JSON."""

    def write(words: Any) -> None:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, json.dumps(words).encode() + b"\n")
        os.close(file)

    return write


class Written(Sequence[Any]):
    """What processes noted, in order, as if it were the list."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _all(self) -> list[Any]:
        return list(map(json.loads, self._path.read_text().splitlines())) if self._path.exists() else []

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == other

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return repr(self._all())
