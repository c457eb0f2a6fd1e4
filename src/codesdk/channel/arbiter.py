"""A running program's requests → decisions, written to its stdin, each at most once.

Who decides is the judge's matter; this is the bookkeeping around it, and it fails closed: no answer in time, an answer
that cannot be written, a program that does not keep to its word. The one way out of all of these is the abort
sequence: `policy.abort`, then SIGTERM, then SIGKILL for the whole group.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any, Literal, Protocol

from codesdk.channel.commands import Commands, Decided
from codesdk.channel.diagnostics import Diagnostics
from codesdk.channel.limits import MAX_JUDGED, ArbiterLimits
from codesdk.channel.outcome import Abort, Outcome, Tally
from codesdk.channel.protocol import (
    VERSION,
    AbortCode,
    ParseError,
    PolicyAck,
    PolicyCommand,
    ToolProgress,
    ToolRequest,
    ToolResult,
    now,
)
from codesdk.channel.runner import (
    Launch,
    OutputLost,
    ParsedEvent,
    ParseFailed,
    Runner,
    RunnerSession,
    StdinBroken,
    StreamClosed,
    ToolSeen,
)
from codesdk.channel.table import CallTable, Entry
from codesdk.channel.trouble import pause_of, trouble_of
from codesdk.contract.bounds import check_bounds

NO_TIME = "Nobody decided in time."
UNDECIDED = "The call could not be decided, so it must not run."
TOO_MANY = "Too many requests wait for a decision. Ask again later."
UNREADABLE = "The request could not be read: {problem}."
ENDING = "The program is being ended."
AUDITED = "Recorded, and not decided: the mode is audit."
_SHOWN = 80


class Judge(Protocol):
    """Who decides, and keeps the record. Called from one task, but for `decide`."""

    async def decide(self, request: ToolRequest) -> Decided:
        """Decide a call. May take as long as a person does; cancelling it withdraws the question."""
        ...

    async def watch(self, request: ToolRequest) -> None:
        """Record a call that nobody can keep from running."""
        ...

    async def end(self, request: ToolRequest, result: ToolResult | None, *, watched: bool) -> None:
        """Record how an allowed or watched call ended; without a result nobody knows."""
        ...

    async def note(
        self, kind: Literal["warning", "violation", "signal"], words: str, details: dict[str, Any]
    ) -> None:
        """Record something worth knowing."""
        ...


class Arbiter:
    """Decides the requests of one program. Use it once."""

    def __init__(
        self,
        runner: Runner,
        judge: Judge,
        limits: ArbiterLimits | None = None,
        *,
        audit: bool = False,
        run_id: str | None = None,
        diagnostics: Diagnostics | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`audit`: everything is allowed and recorded. `warn` is told, in a sentence, what a person should know.

        Raise `InvalidRequest` for limits that cannot be.
        """
        self._runner = runner
        self._judge = judge
        self._limits = limits or ArbiterLimits()
        check_bounds(self._limits)
        self._audit = audit
        self._commands = Commands(run_id, self._limits)
        self._diagnostics = diagnostics
        self._warn = warn
        self.tally = Tally()
        self._calls = CallTable(self.tally)
        self._turns = asyncio.Semaphore(MAX_JUDGED)
        self._session: RunnerSession | None = None
        self._argv: list[str] = []
        self._broken: str | None = None
        self._controlled = True
        self._abort: Abort | None = None
        self._aborting: asyncio.Task[None] | None = None
        self._written: Any = None
        self._work: set[asyncio.Task[None]] = set()
        self._interrupted = False

    async def start_session(self, launch: Launch) -> RunnerSession:
        """Start the program and tell it that somebody decides here. Raise `TaskFailure` if it cannot run."""
        self._argv = list(launch.argv)
        self._session = session = await self._runner.start_session(launch)
        self._send(self._commands.ping())
        return session

    async def serve(self) -> Outcome:
        """Decide until the program has ended. Cancelled, it kills the program."""
        session = self._session
        assert session is not None, "start_session comes first"
        watching = asyncio.create_task(self._watch(session))
        try:
            await self._listen(session)
            await self._finish()
        except BaseException:
            session.send_signal(signal.SIGKILL)
            raise
        finally:
            left = [watching, *self._work, *filter(None, [self._aborting])]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await session.close()
        return Outcome(
            returncode=session.status.result(),
            tally=self.tally,
            abort=self._abort,
            controlled=self._controlled,
            diagnostics=self._written,
        )

    def interrupt(self) -> None:
        """Pass Ctrl-C on. The second one ends the program."""
        if self._session is not None and not self._interrupted:
            self._interrupted = True
            self._session.send_signal(signal.SIGINT)
        else:
            self.abort("user_cancel", "cancelled by the user")

    def abort(self, code: AbortCode, reason: str) -> None:
        """Begin to end the program. Only the first reason counts."""
        session = self._session
        if self._abort is not None or session is None or session.status.done():
            return
        self._abort = Abort(code=code, reason=reason)
        if code != "user_cancel":
            self._warn(f"the program is ended: {reason}")
        if self._diagnostics is not None:
            self._written = self._diagnostics.write(self._argv, self._abort, session, self._calls, self.tally)
        for entry in self._calls.waiting:
            self._withdraw(entry)
        self._aborting = asyncio.create_task(self._end_by_force(session, self._abort))

    # --- what the program says ---

    async def _listen(self, session: RunnerSession) -> None:
        """Take what comes until the program has ended and all it said is taken."""
        while not (session.status.done() and session.events.empty()):
            coming = asyncio.ensure_future(session.events.get())
            try:
                await asyncio.wait([coming, session.status], return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
            if coming.done() and not coming.cancelled():
                await self._take(session, coming.result())

    async def _take(self, session: RunnerSession, seen: ParsedEvent) -> None:
        match seen:
            case ToolSeen():
                await self._event(seen)
            case ParseFailed():
                if self._diagnostics is not None:
                    self._diagnostics.note_unreadable(seen)
                await self._misread(seen.error)
            case StreamClosed():
                session.closed.add(seen.stream)
            case StdinBroken():
                self._broken = seen.why
                if seen.stuck or self._calls.waiting:
                    self._spawn(self._lost_control(seen.why))
            case OutputLost():
                self.abort("user_cancel", f"nobody reads its {seen.stream} any more")

    async def _event(self, seen: ToolSeen) -> None:
        event = seen.event
        if self._diagnostics is not None:
            self._diagnostics.note(event)
        match event:
            case ToolRequest():
                await self._request(event, seen.size)
                await self._drop_oldest()
            case ToolResult():
                await self._result(event)
            case ToolProgress():
                words = f"{event.stage}: {event.message}" if event.message else event.stage
                details = {"id": event.id, "stage": event.stage, "percent": event.percent}
                await self._judge.note("signal", words, details)
            case PolicyAck():
                pass  # that it was printed is all that there is to know

    async def _request(self, request: ToolRequest, size: int) -> None:
        if self._audit or not request.requires_policy:
            await self._watched(request, size)
            return
        full = (
            self._calls.waiting_count >= self._limits.max_waiting
            or self._calls.waiting_bytes + size > self._limits.max_waiting_bytes
        )
        entry = self._calls.open(request, "request", size)
        if entry is None:
            return
        if self._broken is not None:
            self._spawn(self._lost_control(self._broken))
        elif full or self._abort is not None:
            self._conclude(request.id, Decided(allow=False, reason=TOO_MANY if full else ENDING))
        else:
            entry.judging = self._spawn(self._decide(request))

    async def _drop_oldest(self) -> None:
        """Close the books of calls whose result never came, so that a program which tells none costs no memory."""
        limits = self._limits
        while (entry := self._calls.drop_oldest(limits.max_open, limits.max_open_bytes)) is not None:
            if entry.state in ("allowed", "watched"):
                await self._judge.end(entry.request, None, watched=entry.state == "watched")

    async def _watched(self, request: ToolRequest, size: int) -> None:
        entry = self._calls.open(request, "watch", size)
        if entry is None:
            return
        self.tally.watched += 1
        await self._judge.watch(request)
        what = f"{request.tool[:_SHOWN]} ({request.kind})"
        if request.kind in self._limits.abort_on:
            self.abort("policy_violation", f"it does {what}, which nobody decides here")
        elif request.requires_policy:
            self._send(self._commands.decision(request.id, Decided(allow=True, reason=AUDITED)))
        elif not self._audit:
            await self._uncontrolled(f"it does not wait for a decision on {what}")

    async def _result(self, result: ToolResult) -> None:
        before = self._calls.state_of(result.id)
        entry, remark = self._calls.move(result.id, "done" if result.ok else "failed")
        if entry is None:
            return
        tool = entry.request.tool[:_SHOWN]
        if before in ("allowed", "watched"):
            await self._judge.end(entry.request, result, watched=before == "watched")
        elif before == "pending" and entry.judging is not None:
            entry.judging.cancel()
        if remark == "unasked":
            self.tally.unasked += 1
            await self._uncontrolled(f"it ran {tool} before that was decided", entry.request)
        elif remark == "ignored_denial":
            self.tally.ignored_denials += 1
            words = f"it ran {tool} although that was denied"
            await self._judge.note("violation", f"The program did not obey: {words}.", {"id": result.id})
            self._send(self._commands.ping())
            self.abort("policy_violation", words)

    async def _uncontrolled(self, why: str, request: ToolRequest | None = None) -> None:
        """Report a program that does not wait, once; a call that ran undecided, each time."""
        if self._controlled or request is not None:
            details = {} if request is None else {"id": request.id, "tool": request.tool}
            await self._judge.note(
                "violation", f"The program cannot be controlled, only watched: {why}.", details
            )
        if self._controlled:
            self._controlled = False
            self._warn(f"audit only: {why}")
        if self._limits.require_control:
            self.abort("policy_violation", f"{why}, and control is required")

    async def _misread(self, error: ParseError) -> None:
        self.tally.parse_errors += 1
        if error.waits is not None:
            unread = ToolRequest(
                v=VERSION, ts=now(), id=error.waits, tool="unreadable", requires_policy=True, args={}
            )
            if self._calls.open(unread, "request", 0) is not None:
                words = UNREADABLE.format(problem=error.problem.rstrip("."))
                self._conclude(error.waits, Decided(allow=False, reason=words))
        if self.tally.parse_errors == 1:
            await self._judge.note("warning", f"An event could not be read: {error.problem}.", {})
        if self.tally.parse_errors > self._limits.max_parse_errors:
            self.abort(
                "fatal_error",
                f"more than {self._limits.max_parse_errors} of its events could not be read, the last because {error.problem}",
            )

    # --- decisions ---

    async def _decide(self, request: ToolRequest) -> None:
        try:
            async with asyncio.timeout(self._limits.decision_s), self._turns:
                decided = await self._judge.decide(request)
        except TimeoutError:
            entry, _ = self._calls.move(request.id, "timeout")
            if entry is not None:
                self.tally.timeouts += 1
                await self._say(self._commands.decision(request.id, Decided(allow=False, reason=NO_TIME)))
            return
        except Exception:  # noqa: BLE001 - whatever a judge fails of, the call was not allowed
            decided = Decided(allow=False, reason=UNDECIDED)
        if self._settle(request.id, decided):
            await self._say(self._commands.decision(request.id, decided))

    def _conclude(self, call_id: str, decided: Decided) -> None:
        if self._settle(call_id, decided):
            self._send(self._commands.decision(call_id, decided))

    def _settle(self, call_id: str, decided: Decided) -> bool:
        """Note a decision. Return whether it is the first, and so to be written."""
        entry, _ = self._calls.move(call_id, "allow" if decided.allow else "deny")
        if entry is None:
            return False
        if decided.allow:
            self.tally.allowed += 1
        else:
            self.tally.denied += 1
        return True

    def _withdraw(self, entry: Entry) -> None:
        """Give up a call whose program is being ended, or is gone."""
        if self._settle(entry.request.id, Decided(allow=False, reason=ENDING)) and entry.judging is not None:
            entry.judging.cancel()

    async def _say(self, command: PolicyCommand) -> None:
        assert self._session is not None
        await self._session.control.put(command)

    def _send(self, command: PolicyCommand) -> None:
        """Queue a command without waiting for room."""
        self._spawn(self._say(command))

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    # --- trouble ---

    async def _lost_control(self, why: str) -> None:
        """End a program that cannot be answered, unless it is just ending by itself."""
        session = self._session
        assert session is not None
        await asyncio.wait([session.status], timeout=self._limits.grace_s)
        if session.status.done():
            return
        for entry in self._calls.waiting:
            self._calls.move(entry.request.id, "broken")
            if entry.judging is not None:
                entry.judging.cancel()
        self.abort("fatal_error", f"a decision cannot reach it: {why}")

    async def _watch(self, session: RunnerSession) -> None:
        """Look for trouble. A program in trouble is asked whether it lives, then ended."""
        while self._abort is None:
            await asyncio.sleep(pause_of(self._limits))
            if trouble_of(session, self._calls, self._limits) is None:
                continue
            await self._say(self._commands.ping())
            await asyncio.sleep(self._limits.probe_s)
            trouble = trouble_of(session, self._calls, self._limits)
            if trouble is not None:
                await self._judge.note("violation", f"The program is stuck: {trouble}.", {})
                self.abort("fatal_error", trouble)

    async def _end_by_force(self, session: RunnerSession, abort: Abort) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.grace_s):
                await self._say(self._commands.abort(abort))
        for number in (signal.SIGTERM, signal.SIGKILL):
            await asyncio.wait([session.status], timeout=self._limits.grace_s)
            session.send_signal(number)  # also if the program has ended: what it started may not have

    async def _finish(self) -> None:
        """Close the books: what was not decided never will be, and what ran has an end that nobody knows."""
        for entry in self._calls:
            if entry.state == "pending":
                self._withdraw(entry)
            elif entry.state in ("allowed", "watched"):
                await self._judge.end(entry.request, None, watched=entry.state == "watched")
        for task in self._work:
            task.cancel()
        if waiting := [*self._work, *filter(None, [self._aborting])]:
            await asyncio.wait(waiting)
