"""Arguments, the environment and a data directory → the daemon's address, and the token for it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from codesdk.contract.errors import InvalidRequest, NotFound

URL = "CODESDK_URL"
TOKEN = "CODESDK_TOKEN"
DATA_DIR = "CODESDK_DATA_DIR"
DEFAULT_DATA_DIR = ".codesdk"


class Address(NamedTuple):
    """Where requests go. The token is never shown."""

    url: str
    token: str | None

    def __repr__(self) -> str:
        """Show the address without its token."""
        return f"Address({self.url!r})"


Find = Callable[[], Address]
"""Looks up the address again: a daemon that was restarted has another token, and often another port."""


def finder(url: str | None, token: str | None, data_dir: str | os.PathLike[str] | None) -> Find:
    """Return what finds the daemon: at the given address, at CODESDK_URL, or by a data directory's lock file.

    A given data directory takes precedence over CODESDK_URL. A token from a lock file is sent to the daemon
    that wrote it and to no other.
    """
    if url is None and data_dir is None:
        url = os.environ.get(URL) or None
    token = token or os.environ.get(TOKEN) or None
    directory = Path(data_dir or os.environ.get(DATA_DIR) or DEFAULT_DATA_DIR)
    fixed = None if url is None else _checked(url)

    def find() -> Address:
        from codesdk.local import find_daemon

        found = find_daemon(directory)
        if fixed is None:
            if found is None:
                raise NotFound(
                    f"No daemon serves the data directory {directory}. Start one with"
                    f" `codesdkd --data-dir {directory}`, or say where it is: CODESDK_URL."
                )
            return Address(found[0], token or found[1])
        if token is None and found is not None and found[0] == fixed:
            return Address(fixed, found[1])
        return Address(fixed, token)

    return find


def _checked(url: str) -> str:
    """Return an address without its final slash. Raise if it is not a plain http or https address."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    else:
        good = good and not (parts.query or parts.fragment or parts.username or parts.password)
    if not good:
        raise InvalidRequest("The daemon's address must be like http://127.0.0.1:8000, without a password.")
    return url.rstrip("/")
