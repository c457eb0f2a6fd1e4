"""For programs: say what they are about to do, wait for the decision, report the end.

    async with open_channel() as channel:
        async with channel.tool("fs.read", "read", {"path": "README.md"}) as call:
            call.output = Path("README.md").read_text()

Whatever goes wrong is a no: a deny, `ask`, a constraint that the call does not meet or that nobody knows, no answer in
time, a closed stdin, an abort.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from secrets import token_hex
from types import TracebackType
from typing import Any

from codesdk.channel.constraints import unmet
from codesdk.channel.framing import MAX_LINE_BYTES
from codesdk.channel.protocol import (
    MAX_ID_CHARS,
    TIMEOUT_MS,
    VERSION,
    Action,
    PolicyAbort,
    PolicyAck,
    PolicyCommand,
    PolicyDecision,
    PolicyPing,
    ToolEvent,
    ToolProgress,
    ToolRequest,
    ToolResult,
    encode,
    moment_of,
    now,
    read_command,
)

TIMED_OUT = "policy timeout"
EXPIRED = "decision expired"
_CHUNK = 1 << 16
_RENEWALS = 3


class ToolDenied(Exception):
    """The call may not run. The message says why."""


class ChannelClosed(ToolDenied):
    """Nobody decides any more: the session was aborted, or stdin has ended."""


class ToolCall:
    """A call that was allowed. Set `output` to what it gave."""

    def __init__(self, channel: "Channel", tool: str, action: Action, args: Mapping[str, Any]) -> None:
        self.id = f"t-{token_hex(8)}"
        self.output: Any = None
        self._channel = channel
        self._what = tool, action, dict(args)
        self._until: float | None = None
        self._ended = False

    async def ask(self, rationale: str | None = None) -> None:
        """Request the call and wait. Raise `ToolDenied` if it may not run. Asks again if the answer came too late."""
        tool, action, args = self._what
        for attempt in range(_RENEWALS + 1):
            if attempt:
                self._say(ok=False, error=EXPIRED)
                self.id, self._ended = f"t-{token_hex(8)}", False
            decision = await self._channel.request(self.id, tool, action, args, rationale)
            if isinstance(decision, str):
                self.fail(decision)
                raise (ChannelClosed if self._channel.closed else ToolDenied)(decision)
            why = unmet(decision.constraints or {}, args)
            if why is not None:
                self.fail(why)
                raise ToolDenied(why)
            self._until = _expiry(decision)
            if not self.expired:
                return
        self.fail(EXPIRED)
        raise ToolDenied(EXPIRED)

    @property
    def expired(self) -> bool:
        """Whether the decision holds no longer."""
        return self._until is not None and time.time() > self._until

    async def renew(self) -> None:
        """Ask again if the decision has expired: before each step of a long call that needs it."""
        if self.expired:
            self._say(ok=False, error=EXPIRED)
            self.id, self._ended = f"t-{token_hex(8)}", False
            await self.ask("the decision has expired")

    def progress(self, stage: str, message: str | None = None, percent: float | None = None) -> None:
        """Report how far the call is."""
        self._channel.send(
            ToolProgress(v=VERSION, ts=now(), id=self.id, stage=stage, message=message, percent=percent)
        )

    def done(self) -> None:
        """Report that the call went well."""
        self._say(ok=True, output=self.output)

    def fail(self, error: str) -> None:
        """Report that it did not, or that it did not run."""
        self._say(ok=False, error=error)

    def _say(self, **how: Any) -> None:
        if not self._ended:
            self._ended = True
            self._channel.send(ToolResult(v=VERSION, ts=now(), id=self.id, **how))


class Channel:
    """One side of the channel. Get it from `open_channel`; `write` takes lines, `feed` is given what stdin gives."""

    def __init__(self, write: Callable[[bytes], None], *, timeout_s: float | None = None) -> None:
        """Without `timeout_s`, a decision is waited for as long as the other side says, or five minutes."""
        self._write = write
        self._own_timeout_s = timeout_s
        self._timeout_s = timeout_s or TIMEOUT_MS / 1000
        self._pending: dict[str, asyncio.Future[PolicyDecision | str]] = {}
        self._decided: set[str] = set()
        self._rest = b""
        self._pinged = asyncio.Event()
        self.closed: str | None = None
        """Why nobody decides any more."""
        self.on_abort: Callable[[str], None] = lambda _: None
        """Called once, when the other side orders the program to end or is gone."""

    async def ready(self, timeout_s: float) -> bool:
        """Return whether somebody decides, once they say so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._pinged.wait()
        return self._pinged.is_set() and self.closed is None

    @contextlib.asynccontextmanager
    async def tool(
        self, tool: str, action: Action, args: Mapping[str, Any], *, rationale: str | None = None
    ) -> AsyncGenerator[ToolCall]:
        """Run a call in the block, if it may run. Raise `ToolDenied` if not. What the block raises is its error."""
        call = ToolCall(self, tool, action, args)
        await call.ask(rationale)
        try:
            yield call
        except BaseException as error:
            call.fail(str(error) or type(error).__name__)
            raise
        call.done()

    def call(self, tool: str, action: Action, args: Mapping[str, Any]) -> ToolCall:
        """Return a call that is asked about and reported by hand."""
        return ToolCall(self, tool, action, args)

    def tell(self, tool: str, action: Action, args: Mapping[str, Any]) -> ToolCall:
        """Report a call that somebody else has decided, without waiting for an answer."""
        call = ToolCall(self, tool, action, args)
        self.send(
            ToolRequest(
                v=VERSION,
                ts=now(),
                id=call.id,
                tool=tool[:MAX_ID_CHARS],
                action=action,
                args=dict(args),
                requires_policy=False,
            )
        )
        return call

    async def request(
        self, call_id: str, tool: str, action: Action, args: dict[str, Any], rationale: str | None
    ) -> PolicyDecision | str:
        """Request a decision. Return it, or why there is none that allows the call."""
        if self.closed is not None:
            return self.closed
        answer: asyncio.Future[PolicyDecision | str] = asyncio.get_running_loop().create_future()
        self._pending[call_id] = answer
        self.send(
            ToolRequest(
                v=VERSION,
                ts=now(),
                id=call_id,
                tool=tool[:MAX_ID_CHARS],
                action=action,
                args=args,
                rationale=rationale,
                requires_policy=True,
            )
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                decision = await answer
        except TimeoutError:
            return TIMED_OUT
        finally:
            self._pending.pop(call_id, None)
            self._decided.add(call_id)
        if isinstance(decision, PolicyDecision) and decision.decision != "allow":
            return decision.reason or "denied by policy"
        return decision

    def send(self, event: ToolEvent) -> None:
        """Print an event. If nobody reads it, the channel is closed."""
        try:
            self._write(encode(event, marked=True))
        except OSError:
            self.close("Nobody reads what this program prints.")

    def feed(self, data: bytes) -> None:
        """Take what came over stdin; nothing at its end."""
        if not data:
            self.close("Nobody decides any more: stdin has ended.")
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
        for line in lines:
            command = read_command(line)
            if command is not None:
                self._take(command)

    def close(self, why: str) -> None:
        """Decide everything that waits with a no, now and from now on."""
        if self.closed is not None:
            return
        self.closed = why
        for answer in self._pending.values():
            if not answer.done():
                answer.set_result(why)
        self.on_abort(why)

    def _take(self, command: PolicyCommand) -> None:
        match command:
            case PolicyPing():
                if command.timeout_ms is not None and self._own_timeout_s is None:
                    self._timeout_s = command.timeout_ms / 1000
                self._pinged.set()
                self.send(PolicyAck(v=VERSION, ts=now(), id=command.id))
            case PolicyAbort():
                self.close(command.reason or "The session was aborted.")
            case PolicyDecision():
                answer = self._pending.get(command.id)
                if answer is not None and not answer.done():
                    answer.set_result(command)
                elif command.id not in self._decided and answer is None:
                    self.send(
                        ToolProgress(
                            v=VERSION,
                            ts=now(),
                            id=command.id,
                            stage="warning",
                            message="A decision on a call that was not requested was ignored.",
                        )
                    )


class open_channel:  # noqa: N801 - used as a function, in `async with`
    """The channel of this process: stdin is read in a thread, events are printed on stdout, or on stderr.

    Lines that the program prints itself must be complete before an event is printed on the same stream.
    """

    def __init__(self, *, timeout_s: float | None = None, stream: str = "stdout") -> None:
        self._timeout_s = timeout_s
        self._stream = sys.stdout if stream == "stdout" else sys.stderr

    async def __aenter__(self) -> Channel:
        channel = Channel(self._print, timeout_s=self._timeout_s)
        loop = asyncio.get_running_loop()
        # A thread, since stdin may be anything: a loop cannot wait for every kind of file.
        threading.Thread(target=_read_stdin, args=(loop, channel), daemon=True).start()
        return channel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave stdin to the thread, which ends with the process."""

    def _print(self, line: bytes) -> None:
        self._stream.flush()  # what was printed before the request comes before it
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._stream.fileno(), rest) :]


def _read_stdin(loop: asyncio.AbstractEventLoop, channel: Channel) -> None:
    data = b"-"
    while data:
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        try:
            loop.call_soon_threadsafe(channel.feed, data)
        except RuntimeError:
            return  # the program is ending


def _expiry(decision: PolicyDecision) -> float | None:
    """Return until when a decision holds: counted from when it was made, if that is known."""
    if decision.expires_in_ms is None:
        return None
    made = moment_of(decision.ts)
    return min(made if made is not None else time.time(), time.time()) + decision.expires_in_ms / 1000
