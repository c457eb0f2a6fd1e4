"""Nobody is recorded as having answered who did not: a question that is left alone in every way, cell by cell.

Each cell asks about a call, lets something else than an answer happen, and compares who decided with what the log
and a real audit say. Nothing may run in any of them.
"""

from collections.abc import Iterable
from contextlib import aclosing

from codesdk.contract.actions import Caller
from codesdk.contract.errors import Conflict, NotFound
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.tools import Actor
from codesdk.sdk import CodeSDK, Session, Task
from codesdk.store import AuditRecord
from codesdk.testing.bench import WRITE, Bench, payloads, seen
from codesdk.testing.cells import Unmet, holds, refused, same
from codesdk.testing.processes import children, kill_since
from codesdk.testing.program_checks import PROCESS, failing, often
from codesdk.testing.runtime_checks import REASON, Check, calls, make_check, says

WAIT_S = 0.5
"""How long a question waits where nobody answers it."""
_BY_ENGINE = ["answered by engine", "denied by engine"]
_BY_SECOND = ["answered by user second through second", "denied by user second through second"]
_VERBS = {
    "approval.answered": "answered",
    "approval.answer": "answered",
    "tool.call.denied": "denied",
    "tool.call.approved": "allowed",
}


async def _no_client(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        silent = await bench.session(sdk, interaction="non_interactive")
        task = await _alone(bench, sdk, silent, "Change the note.")
        await _decided(bench, task, ["denied by policy"])
        same("questions", payloads(await bench.events(task), "approval.requested"), [])
        open_to_all = await bench.session(sdk)
        await open_to_all.set(approval_timeout_s=WAIT_S)
        task = await _alone(bench, sdk, open_to_all, "Change the note.")
        await _decided(bench, task, _BY_ENGINE)
        same("questions", len(payloads(await bench.events(task), "approval.requested")), 1)


async def _client_gone(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        first, second = _as("first", sdk, session), _as("second", sdk, session)
        task = await first.start("Change the note.")
        call = await _asked(task)  # and its stream is closed: nobody watches any more
        same("who decided while nobody was there", _told(await bench.events(task)), [])
        waiting = [(row.tool_call_id, row.state) for row in await sdk.approvals()]
        same("what waits", waiting, [(call, "waiting")])
        await second.deny(call, REASON)
        await refused("an answer of the one who was gone", first.approve(call), Conflict, NotFound)
        same("the answer", (await task.result()).text, "Then not.")
    await _decided(bench, task, _BY_SECOND)


async def _timeout(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        await session.set(approval_timeout_s=WAIT_S)
        first = _as("first", sdk, session)
        task = await first.start("Change the note.")
        call = await _asked(task)
        answered = await seen(task, "approval.answered")
        await refused("an answer that comes too late", first.approve(call), Conflict, NotFound)
        same("the answer", (await task.result()).text, "Then not.")
    holds("answered within" in (answered.reason or ""), f"the reason is the time, found {answered.reason!r}")
    await _decided(bench, task, _BY_ENGINE)


async def _stop(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        first, second = _as("first", sdk, session), _as("second", sdk, session)
        task = await first.start("Change the note.")
        call = await _asked(task)
        await second.stop("enough")
        await refused("an answer after the stop", first.approve(call), Conflict, NotFound)
        result = await task.result()
    same("the end", (result.state, result.stop_reason), ("stopped", "enough"))
    [asked] = payloads(await bench.events(task), "task.stop_requested")
    same("who stopped it", (asked.by.kind, asked.by.id), ("user", "second"))
    await _decided(bench, task, _BY_ENGINE)


async def _agent_killed(bench: Bench) -> None:
    before = children()
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        first = _as("first", sdk, session)
        task = await first.start("Change the note.")
        call = await _asked(task)
        kill_since(before)
        await failing(task, "RUNTIME_CRASHED")
        await refused("an answer after the kill", first.approve(call), Conflict, NotFound)
        same("what still waits", await sdk.approvals(), [])
    await _decided(bench, task, _BY_ENGINE)


async def _sdk_killed(bench: Bench) -> None:
    async with bench.sdk() as one:
        session = await bench.session(one)
        task = await _as("first", one, session).start("Change the note.")
        call = await _asked(task)
        async with bench.sdk() as other:  # takes over, like the next process after a crash
            await bench.again(other, session)
            waiting = [(row.tool_call_id, row.state) for row in await other.approvals()]
            same("what waits", waiting, [(call, "carried")])
            await _decided(bench, task, ["denied by engine"])
            [denied] = payloads(await bench.events(task), "tool.call.denied")
            holds(denied.carried, "the denial says that the question lives on")
            second = _as("second", other, session)
            await second.deny(call, REASON)
            resumed = await second.resume()
            same("the answer", (await resumed.result()).text, "Then not.")
    told = _told(await bench.history(session))
    same("who decided", told, ["denied by engine", "answered by user second through second"])
    same("what the audit says", await _audited(bench, session), told)
    same("what ran", bench.tools.invocations, [])


def _as(name: str, sdk: CodeSDK, session: Session) -> Session:
    """Return a session as a client of a name has it."""
    caller = Caller(actor=Actor(kind="user", id=name), client_id=name)
    return Session(sdk.as_caller(caller).service, session.id)


async def _asked(task: Task) -> str:
    """Watch a task until it asks, and watch no longer. Return the call that is asked about."""
    async with aclosing(task.events()) as events:
        async for event in events:
            if event.type == "approval.requested":
                return event.payload.tool_call_id or ""
    raise Unmet("the task ended without a question")


async def _alone(bench: Bench, sdk: CodeSDK, session: Session, message: str) -> Task:
    """Start a task that nobody watches, and return when the store has its end."""
    task = await _as("first", sdk, session).start(message)
    await bench.stored(task, TERMINAL_TYPES)
    same("the answer", (await task.result()).text, "Then not.")
    return task


async def _decided(bench: Bench, task: Task, wanted: list[str]) -> None:
    """Check who decided in a task, that the audit says the same, and that nothing ran."""
    events = await bench.events(task)
    same("who decided", _told(events), wanted)
    same("what the audit says", await _audited(bench, task.session, {event.seq for event in events}), wanted)
    same("calls that started", payloads(events, "tool.call.started"), [])
    same("what ran", bench.tools.invocations, [])


def _told(events: Iterable[Event]) -> list[str]:
    """Return who decided what, in short, by the log."""
    found: list[str] = []
    for event in events:
        verb = _VERBS.get(event.type)
        if verb is not None:
            by: Actor = event.payload.by  # type: ignore[union-attr]
            found.append(_phrase(verb, by.kind, by.id, event.trace.client_id))
    return found


async def _audited(bench: Bench, session: Session, seqs: set[int] | None = None) -> list[str]:
    """Return the same by the audit."""
    records: list[AuditRecord] = await bench.audited(session)
    return [
        _phrase(
            _VERBS.get(record.action, record.outcome), record.who.kind, record.who.id, record.who.client_id
        )
        for record in records
        if record.action in ("approval.answer", "tool.decision")
        and (seqs is None or record.what["seq"] in seqs)
    ]


def _phrase(verb: str, kind: str, name: str | None, client: str | None) -> str:
    # What the policy decides in a task names the client that the task came from.
    through = f" through {client}" if client and kind != "policy" else ""
    return f"{verb} by {kind}{f' {name}' if name else ''}{through}"


_ASKS = calls(WRITE, "note")
_CALLS = ("supports_tool_calls",)

CONSENT_CHECKS: tuple[Check, ...] = (
    make_check(
        "consent: no client",
        _no_client,
        *[_ASKS, says("Then not.")] * 2,
        needs=(*_CALLS, "supports_non_interactive"),
        shares=True,
    ),
    make_check("consent: client gone", _client_gone, _ASKS, says("Then not."), needs=_CALLS, shares=True),
    make_check("consent: timeout", _timeout, _ASKS, says("Then not."), needs=_CALLS, shares=True),
    make_check("consent: stop", _stop, _ASKS, needs=(*_CALLS, "supports_stop"), shares=True),
    make_check(
        "consent: CodeSDK killed",
        _sdk_killed,
        _ASKS,
        says("Then not."),
        needs=(*_CALLS, "supports_session_resume"),
    ),
)
KILL_CHECKS: tuple[Check, ...] = (
    make_check("consent: agent killed", _agent_killed, _ASKS, *often({"text": "Again."}), where=PROCESS),
)
"""Those that only a program can show: there is something to kill."""
