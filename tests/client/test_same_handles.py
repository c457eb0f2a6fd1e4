"""The remote handles are the library's: same methods, same parameters, same results."""

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest

from codesdk.client import CodeSDKClient, RemoteSession, RemoteTask, SyncClient, SyncSession, SyncTask
from codesdk.handles import Session, Task
from codesdk.sdk import CodeSDK

ONLY_EMBEDDED = {"open", "as_principal", "model_problems", "archive", "write_bundle", "collect"}
"""What has no meaning over HTTP: opening a directory, being somebody else, reading the engine's own parts and files."""

ONLY_REMOTE = {"create_session": {"recording"}}
"""Parameters that only a daemon needs, because what the library takes in their place stays on its machine."""

PAIRS = [
    (CodeSDK, CodeSDKClient),
    (Session, RemoteSession),
    (Task, RemoteTask),
    (CodeSDK, SyncClient),
    (Session, SyncSession),
    (Task, SyncTask),
]


def methods(kind: type) -> dict[str, Any]:
    return {
        name: found
        for name, found in inspect.getmembers(kind)
        if not name.startswith("_") and name not in ONLY_EMBEDDED
    }


def shape(method: Any) -> tuple[list[Any], str]:
    """Return parameters and result, with the class names of the library."""
    signature = inspect.signature(method)
    more = ONLY_REMOTE.get(method.__name__, set()) if callable(method) else set()
    result = re.sub(r"\b(Remote|Sync)(?=Session\b|Task\b)", "", str(signature.return_annotation))
    result = result.replace("'", "").replace("codesdk.client.handles.", "").replace("<class ", "")
    result = result.replace("AsyncGenerator", "AsyncIterator").rstrip(">")
    parameters = [each for each in signature.parameters.values() if each.name not in more]
    return parameters, result.rpartition(".")[2]


@pytest.mark.parametrize(("embedded", "remote"), PAIRS)
def test_what_the_library_can_do_the_client_can_do_with_the_same_words(embedded: type, remote: type):
    wanted = {name: shape(method) for name, method in methods(embedded).items()}
    found = {name: shape(getattr(remote, name)) for name in wanted if hasattr(remote, name)}
    if remote.__name__.startswith("Sync"):  # an iterator is one, whether it waits or not
        wanted = {name: (shaped[0], shaped[1].replace("Async", "")) for name, shaped in wanted.items()}
        found = {name: (shaped[0], shaped[1].replace("Async", "")) for name, shaped in found.items()}
    assert found == wanted


@pytest.mark.parametrize(("embedded", "remote"), PAIRS[:3])
def test_what_is_awaited_in_the_library_is_awaited_in_the_client(embedded: type, remote: type):
    for name, method in methods(embedded).items():
        found = getattr(remote, name)
        assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(method), name
        assert inspect.isasyncgenfunction(found) == inspect.isasyncgenfunction(method), name


def test_importing_the_client_loads_no_http_library_no_engine_and_no_database():
    heavy = ("httpx2", "sqlite3", "rich", "click", "codesdk.engine", "codesdk.store", "codesdk.handles")
    code = f"import codesdk.client, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
