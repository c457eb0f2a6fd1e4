"""A session with a long history, made in seconds: notices between tasks, written straight into the log."""

from pathlib import Path

from codesdk import CodeSDK, SessionSettings
from codesdk.contract.records import Changes
from codesdk.engine.log.state import decode_state, encode_state
from codesdk.store.sqlite.log import SqliteLog

_BATCH = 2_000
_SCRIPT = {"loop": True, "turns": [{"steps": [{"text": "A short answer."}]}]}
_TIME = "2026-01-01T00:00:00.000Z"
_HEAD = '{"schema_version":1,"seq":'
_TAIL = (
    ',"time":"%s","type":"runtime.notice","trace":{"session_id":"%s"},"runtime":{"name":"scripted"},'
    '"payload":{"kind":"warning","message":"%s","details":{}}}'
)


async def store_history(data_dir: Path, events: int) -> str:
    """Make a session with one finished task and so many events in all. Return its id."""
    async with CodeSDK.open(data_dir) as sdk:
        session = await sdk.create_session(
            runtime="scripted",
            workspace=data_dir,
            settings=SessionSettings(runtime_config={"script": _SCRIPT}),
        )
        await (await session.start("Go on")).result()
    await _extend(data_dir / "codesdk.db", session.id, events)
    return session.id


async def _extend(file: Path, session_id: str, events: int) -> None:
    """Append what is missing, and a snapshot of the state behind it: nothing of it changes any but the seq."""
    log = await SqliteLog.open(file, synchronous="normal")
    try:
        epoch = await log.take(session_id, "history")
        head, stored = await log.head(session_id), await log.snapshot(session_id)
        assert stored is not None
        state = decode_state(stored.state)
        tail = _TAIL % (_TIME, session_id, "x" * 250)
        while head < events:
            count = min(_BATCH, events - head)
            frames = [f"{_HEAD}{seq}{tail}".encode() for seq in range(head + 1, head + count + 1)]
            state.seq = head + count
            changes = Changes(snapshot=encode_state(state)) if state.seq == events else None
            await log.append(session_id, epoch, head + 1, frames, durable=False, changes=changes)
            head += count
    finally:
        await log.close()
