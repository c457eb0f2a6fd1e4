"""`codesdk login`: log in to a runtime's own account, in a credential namespace. Never opens a browser."""

import asyncio
import sys
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

    async def show(self, prompt: LoginPrompt) -> None:
        _show(prompt)

    async def ask(self, prompt: LoginPrompt) -> str:
        _show(prompt)
        return await asyncio.to_thread(_read_answer)


async def _login_here(setup: Setup, here: RuntimesHere, name: str, namespace: str | None) -> LoginOutcome:
    runtime = await here.find(name)
    env = env_here(runtime, setup.data_dir, here.logins, namespace)
    require_logins(runtime, env)
    return await log_in(runtime, env, _Terminal())


async def _login_there(setup: Setup, name: str, namespace: str | None) -> LoginOutcome:
    """Log in where a daemon runs, which keeps the dialog while this process asks and answers."""
    async with connected(setup) as client:
        state = await client.begin_login(name, credential_namespace=namespace)
        shown: LoginPrompt | None = None
        try:
            while state.outcome is None:
                if state.prompt is not None and state.prompt != shown:
                    _show(state.prompt)
                    shown = state.prompt
                if state.asks:
                    answer = await asyncio.to_thread(_read_answer)
                    state = await client.answer_login(state.login_id, answer)
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


def _read_answer() -> str:
    """Read a line: what a provider's page shows, which is a secret."""
    if sys.stdin.isatty():
        answer: str = click.prompt("answer", hide_input=True, err=True)
        return answer
    answer = sys.stdin.readline()
    if not answer.strip():
        raise InvalidRequest("The login asks for an answer, and stdin has none. Run it at a terminal.")
    return answer.strip()
