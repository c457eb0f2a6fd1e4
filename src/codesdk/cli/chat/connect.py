"""Where the sessions of a chat are → a conversation: a daemon, or a data directory, held by this process or another.

Whoever works through a holder that is gone takes its place, as `codesdk acp` does.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from codesdk.acp_agent import Client, HttpPlace, Place, SharedPlace
from codesdk.cli.app import Setup
from codesdk.cli.settings.resolved import Resolved
from codesdk.cli.target.lookup import all_sessions, find_session
from codesdk.cli.target.place import connected, open_shared, runner, served
from codesdk.cli.target.rules import refuse_rules
from codesdk.contract.errors import InvalidRequest
from codesdk.handles import Handles

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation, New
    from codesdk.cli.chat.start import Chat

LOOKED_AT = 1000
"""Among so many of the newest sessions the last one of a workspace is looked for."""


class Opened(NamedTuple):
    """The sessions, and the name of this terminal in their logs."""

    sdk: Handles
    me: str


@asynccontextmanager
async def open_sessions(setup: Setup, rules: Resolved) -> AsyncGenerator[Opened]:
    """Yield the sessions that the options name, to work on."""
    client = Client.of("chat", secrets.token_hex(3))
    if served(setup):
        refuse_rules("daemon")
        async with connected(setup) as http:
            yield _opened(HttpPlace(http), client)
        return
    who = await runner(setup)
    if who != "nobody":
        refuse_rules(who)
    async with SharedPlace(lambda: open_shared(setup, rules)) as place:
        yield _opened(place, client)


def _opened(place: Place, client: Client) -> Opened:
    return Opened(Handles(place.service(client)), client.client_id)


async def last_of(sdk: Handles, workspace: str) -> str | None:
    """Return the session of a workspace that was changed last and is open."""
    seen = 0
    newest: tuple[str, str] | None = None
    async for row in all_sessions(sdk.service):
        seen += 1
        if seen > LOOKED_AT:
            break
        if row.workspace == workspace and row.status == "open":
            newest = max(newest or ("", ""), (row.updated_at, row.session_id))
    return None if newest is None else newest[1]


async def chosen(sdk: Handles, workspace: str, session: str | None, continues: bool) -> str | None:
    """Return the session to continue; None for a new one."""
    if session is not None:
        return (await find_session(sdk.service, session)).session_id
    if not continues:
        return None
    found = await last_of(sdk, workspace)
    if found is None:
        raise InvalidRequest(
            f"There is no session of {workspace} to continue. Leave out --continue to begin one."
        )
    return found


async def converse(opened: Opened, host: "Chat", new: "New", session_id: str | None) -> "Conversation":
    """Return a conversation that is open: in a session, or before its first message."""
    from codesdk.cli.chat.conversation import Conversation
    from codesdk.cli.chat.paint import Painter

    painter = Painter(host.screen.columns, colour=host.colour, styled=host.styled)
    talk = Conversation(opened.sdk, opened.me, host.screen, new, painter, host.pastes)
    await (talk.learn() if session_id is None else talk.open(session_id))
    return talk


async def load_in_thread() -> None:
    """Load what a conversation needs while the prompt is already there."""
    for name in ("codesdk.sdk", "codesdk.cli.chat.conversation", "codesdk.cli.chat.commands"):
        await asyncio.to_thread(import_module, name)
