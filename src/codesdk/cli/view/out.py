"""Write output at once. The errors that end a command early: its reader is gone, or it was interrupted."""

import errno
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TextIO

import click
import msgspec

from codesdk.cli.view.safe import printable, printable_json


class ReaderGone(Exception):
    """Nobody reads the output any more: a closed pipe, or a terminal that is gone."""


class Interrupted(Exception):
    """Ctrl-C, or another request to end, while there was no task to stop first."""


def write_text(stream: TextIO, text: str) -> None:
    """Write a text. Raise `ReaderGone` if nobody reads it."""
    with _gone():
        stream.write(text)
        stream.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout. Raise `ReaderGone` if nobody reads them."""
    with _gone():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write_line(text: str, *, err: bool = False) -> None:
    """Write a line for people. Whoever the words are from, a terminal only shows them."""
    click.echo(printable(text), err=err)


def write_json(value: Any) -> None:
    """Write a value to stdout as one line of JSON."""
    write_encoded([msgspec.json.encode(value)])


def write_encoded(lines: Iterable[bytes]) -> None:
    """Write lines of JSON to stdout: as they are for a program, harmless for a terminal."""
    safe = map(printable_json, lines) if sys.stdout.isatty() else lines
    write_bytes(b"".join([line + b"\n" for line in safe]))


def write_mark(good: bool | None, text: str) -> None:
    """Write a line with a sign before it for good or bad; None: neither."""
    sign, color = ("! ", "yellow") if good is None else ("✓ ", "green") if good else ("✗ ", "red")
    click.secho(sign, fg=color, nl=False)
    write_line(text)


@contextmanager
def _gone() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO):  # EIO: the terminal hung up
            raise ReaderGone from error
        raise
