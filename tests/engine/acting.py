"""Short ways to have an engine act, for tests that drive one directly: each is one action."""

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from codesdk.contract import actions as act
from codesdk.contract.actions import LOCAL, Caller
from codesdk.contract.messages import Message
from codesdk.contract.service import Published
from codesdk.contract.settings import OnBusy, SessionConfig, SettingsChange
from codesdk.contract.tools import Actor
from codesdk.engine.engine import Engine
from codesdk.engine.log.feed import follow as follow_feed
from codesdk.engine.sessions.session import LiveSession

PERSON = Actor(kind="user")


async def create_session(
    engine: Engine,
    config: SessionConfig,
    *,
    principal: str = LOCAL,
    secrets: Iterable[str] = (),
    key: str | None = None,
) -> LiveSession:
    """Create a session and return it."""
    action = act.CreateSession(
        runtime=config.runtime,
        workspace=config.workspace,
        title=config.title,
        model=config.model,
        permission_mode=config.permission_mode,
        interaction_mode=config.interaction_mode,
        native_tools=config.native_tools,
        budgets=config.budgets,
        settings=config.settings,
        secrets=list(secrets),
    )
    row = await engine.execute(action, Caller.of(principal), key)
    return await live_session(engine, row.session_id)


async def live_session(engine: Engine, session_id: str) -> LiveSession:
    """Return a session, acquired as an action would."""
    return await engine._registry.acquire(session_id)


async def start(
    engine: Engine,
    session: LiveSession,
    messages: list[Message],
    *,
    on_busy: OnBusy = "queue",
    task_id: str | None = None,
    output_schema: dict[str, Any] | None = None,
    key: str | None = None,
) -> str:
    """Start a task and return its id."""
    action = act.StartTask(
        session_id=session.session_id,
        message=messages,
        on_busy=on_busy,
        task_id=task_id,
        output_schema=output_schema,
    )
    return (await engine.execute(action, Caller.of(session.state.principal), key)).task_id


async def resume(engine: Engine, session: LiveSession, messages: list[Message] | None = None) -> str:
    """Go on after an interruption and return the new task's id."""
    action = act.ResumeSession(session_id=session.session_id, message=messages)
    return (await engine.execute(action, Caller.of(session.state.principal))).task_id


async def fork_session(
    engine: Engine,
    session_id: str,
    seq: int | None = None,
    *,
    principal: str = LOCAL,
    title: str | None = None,
) -> LiveSession:
    """Fork a session and return the new one."""
    action = act.ForkSession(session_id=session_id, seq=seq, title=title)
    row = await engine.execute(action, Caller.of(principal))
    return await live_session(engine, row.session_id)


async def close_session(engine: Engine, session_id: str, reason: str, *, principal: str = LOCAL) -> None:
    """Close a session."""
    await engine.execute(act.CloseSession(session_id=session_id, reason=reason), Caller.of(principal))


async def delete(engine: Engine, session_id: str, *, principal: str = LOCAL) -> None:
    """Delete a session."""
    await engine.execute(act.DeleteSession(session_id=session_id), Caller.of(principal))


def follow(session: LiveSession, after_seq: int) -> AsyncGenerator[list[Published]]:
    """Yield batches of a live session's events."""
    return follow_feed(session.recorder.feed, after_seq)


async def change_settings(
    engine: Engine, session: LiveSession, change: SettingsChange, by: Actor = PERSON
) -> None:
    """Change a session's settings."""
    action = act.ChangeSettings(session_id=session.session_id, **change.given())
    await engine.execute(action, Caller(principal=session.state.principal, actor=by))
