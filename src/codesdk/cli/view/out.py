"""Writing to stdout: at once, and with one kind of error when nobody takes it. And the other way to be cut short."""

import errno
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec


class ReaderGone(Exception):
    """Nobody takes the output any more: a closed pipe, or a terminal that is gone."""


class Interrupted(Exception):
    """Ctrl-C, or another request to end, while nothing had to be stopped first."""


def write_text(stream: TextIO, text: str) -> None:
    """Write a text. Raise `ReaderGone` if nobody takes it."""
    with _gone():
        stream.write(text)
        stream.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout. Raise `ReaderGone` if nobody takes them."""
    with _gone():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write_json(value: Any) -> None:
    """Write a value to stdout as one line of JSON."""
    write_bytes(msgspec.json.encode(value) + b"\n")


@contextmanager
def _gone() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO):
            raise ReaderGone from error
        raise
