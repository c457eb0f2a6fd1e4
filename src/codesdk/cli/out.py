"""Writing to stdout and the like: at once, and with one kind of error when nobody takes it any more."""

import errno
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec


def write_text(stream: TextIO, text: str) -> None:
    """Write a text. `BrokenPipeError` if the reader or the terminal is gone."""
    with _broken_as_pipe():
        stream.write(text)
        stream.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout. `BrokenPipeError` if the reader or the terminal is gone."""
    with _broken_as_pipe():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write_json(value: Any) -> None:
    """Write a value to stdout as one line of JSON."""
    write_bytes(msgspec.json.encode(value) + b"\n")


@contextmanager
def _broken_as_pipe() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO):
            raise BrokenPipeError(error.errno, error.strerror) from error
        raise
