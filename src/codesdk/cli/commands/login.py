"""`codesdk login`: log in to a runtime's own account, in a credential namespace. Never opens a browser."""

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Generator
from typing import Any

import click

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.runtime_checks import env_here
from codesdk.cli.settings.flags import flags
from codesdk.cli.settings.table import EXTERNAL
from codesdk.cli.target.place import connected, served
from codesdk.cli.target.rules import refuse_rules
from codesdk.cli.target.runtimes import RuntimesHere
from codesdk.cli.view.out import write_line, write_text
from codesdk.cli.view.safe import printable
from codesdk.contract.access import LoginOutcome, LoginPrompt
from codesdk.contract.errors import InvalidRequest
from codesdk.engine import log_in, require_logins
from codesdk.runtimes import resolve

_WAIT_S = 20.0


@click.command()
@click.argument("runtime")
@click.option(
    "--namespace", metavar="NAME", help="The credential namespace to log in to. [default: your own]"
)
@flags([EXTERNAL])
@click.pass_obj
def login(setup: Setup, runtime: str, namespace: str | None, **_: Any) -> int:
    """Log in to the account of RUNTIME's own program, for all sessions of a credential namespace.

    Runs the program's own login and prints the address to open and the code to type in there; a browser is never
    opened. Logins are off until the operator switches them on with CODESDK_LOGINS or `codesdkd --logins`; a key needs
    none of this (`codesdk keys`). Exits 1 if nobody is logged in afterwards.
    """
    name = resolve(runtime)
    if served(setup):
        refuse_rules("daemon")
        outcome = run_async(_login_there(setup, name, namespace))
    else:
        outcome = run_async(_login_here(setup, RuntimesHere.of_command(), name, namespace))
    if not outcome.logged_in:
        write_text(
            sys.stderr, f"Not logged in to {name}: {printable(outcome.problem or 'no reason was given.')}\n"
        )
        return FAILED
    who = f" as {printable(outcome.account_label)}" if outcome.account_label else ""
    write_line(f"Logged in to {name}{who}.")
    return OK


class _Terminal:
    """The person at this terminal. Implements `LoginDialog`."""

    def __init__(self) -> None:
        self._answers = _Answers()

    async def show(self, prompt: LoginPrompt) -> None:
        _show(prompt)

    async def ask(self, prompt: LoginPrompt) -> str:
        _show(prompt)
        return await self._answers.next()


async def _login_here(setup: Setup, here: RuntimesHere, name: str, namespace: str | None) -> LoginOutcome:
    runtime = await here.find(name)
    env = env_here(runtime, setup.data_dir, here, namespace)
    require_logins(runtime, env)
    return await log_in(runtime, env, _Terminal())


async def _login_there(setup: Setup, name: str, namespace: str | None) -> LoginOutcome:
    """Log in where a daemon runs, which keeps the dialog while this process asks and answers."""
    async with connected(setup) as client:
        state = await client.begin_login(name, credential_namespace=namespace)
        shown: LoginPrompt | None = None
        answers = _Answers()
        try:
            while state.outcome is None:
                if state.prompt is not None and state.prompt != shown:
                    _show(state.prompt)
                    shown = state.prompt
                if state.asks:
                    state = await client.answer_login(state.login_id, await answers.next())
                else:
                    state = await client.read_login(state.login_id, wait_s=_WAIT_S)
        except BaseException:
            await client.cancel_login(state.login_id)
            raise
        return state.outcome


def _show(prompt: LoginPrompt) -> None:
    write_line(printable(prompt.message))
    if prompt.url is not None:
        write_line(f"  {printable(prompt.url)}")
    if prompt.code is not None:
        write_line(f"  code: {printable(prompt.code)}")
    if prompt.expires_at is not None:
        write_line(f"  until {printable(prompt.expires_at)}")


class _Answers:
    """Lines that a person types or a pipe holds. Waiting for one can be given up: no thread is left reading."""

    def __init__(self) -> None:
        self._rest = b""

    async def next(self) -> str:
        """Read a line: what a provider's page shows, which is a secret."""
        with _unseen():
            answer = await self._line()
        if not answer.strip():
            raise InvalidRequest("The login asks for an answer, and stdin has none. Run it at a terminal.")
        return answer.strip()

    async def _line(self) -> str:
        try:
            descriptor = sys.stdin.fileno()
        except (OSError, ValueError):  # not a file: it never blocks
            return sys.stdin.readline()
        while b"\n" not in self._rest:
            await _readable(descriptor)
            data = os.read(descriptor, 4096)
            if not data:
                break
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    try:
        loop.add_reader(descriptor, there.set)
    except OSError:  # a file on a disk can always be read
        return
    try:
        await there.wait()
    finally:
        loop.remove_reader(descriptor)


@contextlib.contextmanager
def _unseen() -> Generator[None]:
    """Show no letter of what is typed, if a person types."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    write_text(sys.stderr, "answer: ")
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        write_text(sys.stderr, "\n")
