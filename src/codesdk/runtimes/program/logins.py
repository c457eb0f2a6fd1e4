"""A program's own account: the login in its namespace's folder, whether a task uses it, and how it is made.

A login lies once for all sessions of a namespace, in a folder that belongs to none of them. Only the program's own
login command makes one. It is run without a browser; what it asks of a person goes through a dialog.
"""

import asyncio
import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.access import LoginDialog, LoginPrompt
from codesdk.contract.capabilities import LoginTraffic
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.contract.workspace import Workspace
from codesdk.processes import SEARCH_PATH, Child, start_child
from codesdk.runtimes.program.agent_files import read_agent_file
from codesdk.runtimes.program.environment import login_folder, make_folder, network_variables
from codesdk.sending import send

REFUSED = "refused"
"""Beside the login: which state of it the provider refused, for programs that keep one that is dead."""
LOGIN_S = 15 * 60.0
"""How long a login may take. The codes of the providers are good for no longer."""
_MAX_TEXT = 64 * 1024
_STOP_S = 1.0
_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ADDRESS = re.compile(r"https://[^\s\x1b]+")


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A login that a program left in its folder. The provider may still refuse it."""

    file: Path
    label: str
    """For people: what kind of account it is. Names nobody."""
    secrets: tuple[str, ...]
    expired: bool = False

    def __repr__(self) -> str:
        return f"Login({self.label})"  # a repr ends up in logs and tracebacks


def folder_of(entry: RuntimeEntry, env: RuntimeEnv) -> Path | None:
    """Return where the login of a namespace is kept; None if nothing is kept here."""
    return login_folder(env.state_dir, env.credential_namespace, entry) if env.state_dir else None


def mark_refused(login: Login) -> None:
    """Note that the provider refused a login, unless somebody has renewed it since. Blocking; must not raise."""
    with contextlib.suppress(OSError):
        kept = read_agent_file(login.file)
        if all(secret.encode() in kept for secret in login.secrets):
            login.file.with_name(REFUSED).write_text(str(login.file.stat().st_mtime_ns))


def is_refused(file: Path) -> bool:
    """Return whether a login is just the one that was refused. A new or renewed one is another state of its file."""
    try:
        return read_agent_file(file.with_name(REFUSED)) == str(file.stat().st_mtime_ns).encode()
    except OSError:
        return False


def traffic_of(entry: RuntimeEntry, env: RuntimeEnv) -> LoginTraffic | None:
    """Return how the requests of a login would go; None if none is used here: it is off, or a key takes its place."""
    return None if entry.wire in env.models else env.login


def command_of(entry: RuntimeEntry) -> str:
    """Return the command with which a person logs in."""
    return f"codesdk login {entry.alias or entry.name}"


def required(entry: RuntimeEntry, why: str) -> TaskFailure:
    """Return the error of a task whose program has no usable login."""
    return TaskFailure(
        f"{why} Log in with `{command_of(entry)}`, then start the task again.",
        code="AUTH_REQUIRED",
        runtime=entry.name,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a login file; empty if there is none that can be one. Blocking, but short."""
    try:
        return msgspec.json.decode(read_agent_file(path), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return {}


def prompt_in(text: str, message: str, code: re.Pattern[str] | None = None) -> LoginPrompt | None:
    """Return what a program asks of a person, once it has said all of it: an address and, if it gives one, a code."""
    plain = _COLORS.sub("", text)
    # Only what ends in white space is there as a whole.
    address = re.search(f"({_ADDRESS.pattern})\\s", plain)
    if address is None:
        return None
    if code is None:
        return LoginPrompt(message=message, url=address[1])
    found = code.search(plain, address.end())
    return None if found is None else LoginPrompt(message=message, url=address[1], code=found[1])


async def run_login(
    argv: Sequence[str],
    folder: Path,
    own: Callable[[Path], Mapping[str, str]],
    dialog: LoginDialog,
    prompt: Callable[[str], LoginPrompt | None],
    *,
    answers: bool,
) -> str | None:
    """Run a program's login command, with its folder and a scratch one. Return why it failed, or None.

    `answers`: the person brings a code back, and the program reads it; it may ask again. Ended by force if it is
    cancelled.
    """
    make_folder(folder)
    with tempfile.TemporaryDirectory(prefix="codesdk-") as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        plain = {
            "PATH": SEARCH_PATH,
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "TMPDIR": scratch,
            # Programs that open a browser by themselves ask this one.
            "BROWSER": "/bin/false",
            **network_variables(),
        }
        child = await start_child(argv, cwd=Workspace(str(home)), env={**plain, **own(home)})
        try:
            async with asyncio.timeout(LOGIN_S):
                return await _converse(child, dialog, prompt, answers)
        except TimeoutError:
            return f"Nobody logged in within {LOGIN_S / 60:.0f} minutes."
        finally:
            await child.stop(_STOP_S)


async def _converse(
    child: Child, dialog: LoginDialog, prompt: Callable[[str], LoginPrompt | None], answers: bool
) -> str | None:
    said, shown = "", False
    while piece := await child.stdout.read(1 << 14):
        said = (said + piece.decode("utf-8", "replace"))[-_MAX_TEXT:]
        asked = None if shown else prompt(said)
        if asked is None:
            continue
        if answers:
            answer = (await dialog.ask(asked)).strip()
            said = ""
            with contextlib.suppress(ConnectionError):  # it did not wait for the answer
                await send(child.stdin, f"{answer}\n".encode())
        else:
            shown = True
            await dialog.show(asked)
    code = await child.wait()
    if code == 0:
        return None
    # Its words may quote what was typed, so only the end of its stderr is shown, redacted and without addresses.
    words = _ADDRESS.sub("…", _COLORS.sub("", child.stderr_tail())).strip().rpartition("\n")[2]
    return f"The program's login failed with code {code}" + (f": {words}" if words else ".")


def tidy(folder: Path, kept: Sequence[str]) -> None:
    """Remove what a login command left besides the login. Blocking; must not raise."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
