"""What a runtime's app server says → signals for extensions, in which secrets are redacted. Nothing of it is stored."""

import asyncio
from functools import partial
from typing import Any, cast

from codesdk.contract.ports import AppServerSignal, Listeners
from codesdk.contract.runtime import AppServerMessage
from codesdk.engine.sessions.scope import AT_ONCE_BYTES, SessionScope
from codesdk.redaction import Redactor, StreamRedactor

MAX_STREAMS = 256
"""How many streams of deltas are followed at once."""


class Signals:
    """The signals of one session, for as long as one task's host is used."""

    def __init__(self, scope: SessionScope) -> None:
        self._scope = scope
        self._streams: dict[tuple[Any, ...], tuple[Redactor, StreamRedactor]] = {}

    def pass_on(self, listeners: Listeners, message: AppServerMessage) -> None:
        """Tell listeners of a message that they want."""
        state = self._scope.state
        signal = AppServerSignal(
            session_id=state.session_id,
            principal=state.principal,
            runtime=state.runtime_name,
            method=message.method,
            read=partial(self._read, message),
            received_at=self._scope.ports.stamper.now(),
            seq=state.seq,
            size_bytes=message.size_bytes,
            task_id=None if state.task is None else state.task.task_id,
            thread_id=message.thread_id,
            turn_id=message.turn_id,
            request_id=message.request_id,
        )
        listeners.tell(signal)

    async def _read(self, message: AppServerMessage) -> Any:
        redactor, params = self._scope.redactor, message.params
        shown: str | None = None
        if isinstance(params, dict):
            given = cast("dict[str, Any]", params)
            shown = self._delta(message.method, given, redactor)
            params = given if shown is None else {**given, "delta": ""}
        if message.size_bytes > AT_ONCE_BYTES:
            clean = await asyncio.to_thread(redactor.value, params)
        else:
            clean = redactor.value(params)
        return clean if shown is None else {**clean, "delta": shown}

    def _delta(self, method: str, params: dict[str, Any], redactor: Redactor) -> str | None:
        """Return the text of a delta that is safe to show. What may be half of a secret comes with the next one."""
        delta, item = params.get("delta"), params.get("itemId")
        if not isinstance(delta, str) or not isinstance(item, str):
            return None
        indexes = (
            value for name, value in params.items() if name.endswith("Index") and isinstance(value, int)
        )
        key = (method, item, *indexes)
        known = self._streams.get(key)
        if known is None or known[0] is not redactor:
            if len(self._streams) >= MAX_STREAMS:
                self._streams.pop(next(iter(self._streams)))
            known = self._streams[key] = (redactor, redactor.stream())
        return known[1].feed(delta)
