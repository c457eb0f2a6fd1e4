"""Records model requests that pass the gateway: their start, exact input, end and usage.

`SessionTap` implements the port `ModelTap`, one for each session that opened the gateway. Facts that arrive
after their task has ended carry no `task_id`.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import hash_json
from codesdk.contract.errors import CodeSDKError, ErrorInfo, InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Code, Message, Text, ToolResult
from codesdk.contract.models import (
    ExactInput,
    ExactPart,
    ModelAnswered,
    ModelAsked,
    OwnTexts,
    Refused,
    SplitInput,
    StoredInput,
    Tokens,
)
from codesdk.contract.ownership import WireCall
from codesdk.contract.tools import ToolSpec
from codesdk.engine.models.limits import Spending, Standing, find_over, limits_cost
from codesdk.engine.models.reservations import Reservations
from codesdk.engine.models.wire import WireRecord
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.waiting import Waiters

LOOP_WINDOW_S = 60.0
MAX_RECENT = 256
EXACT = "codesdk-exact-input/1"
_HIDDEN: dict[ev.Purpose, str] = {
    "title": "a title for the conversation",
    "router": "which model to use",
    "compaction": "a summary of the conversation",
}


class SessionTap(WireRecord):
    """The model requests of one session."""

    def __init__(self, scope: SessionScope, spending: Spending) -> None:
        super().__init__(scope)
        self._spending = spending
        self._main: dict[str, None] = {}  # not a set: those of many idle sessions take three times the space
        self.last: ModelAnswered | None = None
        """How the last request of the running task that belongs to its conversation ended."""
        self._messages: list[Message] = []
        self._tools: Sequence[ToolSpec] = ()
        self._strategy: ev.ContextStrategy = "full"
        self._recent: list[tuple[float, int]] = []
        self._reservations = Reservations(scope, spending, self._refuse)
        self._open = 0
        self._one_ended = Waiters()

    # --- what the engine reports ------------------------------------------------------------------------

    def hand_over(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], strategy: ev.ContextStrategy
    ) -> None:
        """Remember the conversation that the runtime begins a task with."""
        self._messages = []
        self.continue_with(messages, tools)
        self._strategy = strategy

    def continue_with(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Remember how a conversation went on that the runtime itself keeps, up to the task that begins now."""
        self._messages += messages
        self._tools = tools
        self._results = []
        self._strategy = "delta"
        self._conversed = self._unknown = False
        self.last = None

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Remember what the runtime is given in addition."""
        self._messages += messages

    async def idle(self, timeout_s: float) -> None:
        """Wait until no request is open, at most `timeout_s`: the task ends. What waits for a budget is refused."""
        self._reservations.turn_away()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._open:
                    await self._one_ended.wait()

    # --- what the gateway calls ---------------------------------------------------------------------------

    def words(self) -> Sequence[str]:
        """Return what users said in the conversation that the runtime was given."""
        return [text for message in self._messages if message.role == "user" for text in _texts(message)]

    @property
    def secrets(self) -> Sequence[str]:
        return self._scope.redactor.secrets

    def learn(self, secrets: Sequence[str]) -> None:
        self._scope.learn(secrets)

    def learn_login(self, secrets: Sequence[str]) -> None:
        try:
            self._scope.learn_from_runtime(secrets, logins=True)
        except InvalidRequest as error:  # it cannot be kept out of what follows, so nothing may follow
            message = f"The runtime brought too many logins. {error.message} Start a new session."
            self._scope.halt(ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=False), None)

    async def own_texts(self) -> OwnTexts:
        """Return what CodeSDK gave the runtime so far in the running task."""
        scope, messages = self._scope, list(self._messages)
        attachments: list[bytes] = []
        for block in (block for message in messages for block in message.content):
            if isinstance(block, ArtifactBlock):
                with contextlib.suppress(CodeSDKError):
                    attachments.append(await scope.read_artifact(block.artifact_id))
        return OwnTexts(
            system=list(_strings(scope.redactor.value(scope.settings.runtime_config))),
            messages=[text for message in messages for text in _texts(message)],
            tools={tool.name: tool.description for tool in self._tools},
            results=[*(text for message in messages for text in _results(message)), *self._results],
            attachments=attachments,
        )

    async def opened(self, asked: ModelAsked) -> str | Refused:
        """Record a new request. Return its id, or why it must not go out.

        Waits while open requests may use up what is left of a budget.
        """
        scope = self._scope
        refused = self._no_login(asked) or self._refusal(asked) or await self._reservations.room(asked)
        if refused is not None:
            return refused
        # No await from here on: what was found to fit still does when it is reserved.
        state = scope.state
        before = state.spent
        request_id = scope.ports.stamper.mint("req")
        self._tasks[request_id] = state.task.task_id if state.task else None
        if asked.purpose == "main":
            self._main[request_id] = None
        scope.journal.write(
            ev.RequestStarted(request_id=request_id, purpose=asked.purpose, model=asked.model)
        )
        self._spending.follow(state, before)
        self._reservations.take(request_id, asked)
        if asked.purpose in _HIDDEN:
            message = f"The runtime asked the model for {_HIDDEN[asked.purpose]}."
            details = {"request_id": request_id, "purpose": asked.purpose}
            lifecycle.notice(scope.journal, "hidden_request", message, details)
        self._begin()
        return request_id

    async def taken(self, request_id: str, exact: ExactInput) -> StoredInput:
        """Store the exact request; it is committed when this returns. Return the hashes of its documents."""
        scope, own = self._scope, exact.own
        document = _document(exact.wire, exact)
        sources_ref, input_ref, own_ref, _ = await asyncio.gather(
            scope.put_json(exact.sources, "implicit sources"),
            scope.put_json(document, "exact input"),
            _nothing() if own is None else scope.put_json(_document(exact.wire, own), "the agent's request"),
            asyncio.gather(*(scope.put_artifact(data, "application/json") for data in _parts(exact))),
        )
        scope.journal.write(
            ev.ModelInput(
                capture="exact",
                input_ref=input_ref,
                input_hash=hash_json(document),
                implicit_sources_ref=sources_ref,
                tool_manifest=exact.tools,
                runtime_config=scope.settings.runtime_config,
                context_window=ev.ContextWindow(
                    strategy=self._strategy,
                    budget_tokens=scope.settings.context_budget_tokens,
                    estimated_tokens=exact.estimated_tokens,
                    overhead_tokens=exact.overhead_tokens,
                    omitted=[],
                    replaced=[],
                ),
                request_id=request_id,
            ),
            in_task=self._is_current(request_id),
            raw_ref=own_ref if scope.settings.raw_capture else None,
        )
        await scope.recorder.settle()
        return StoredInput(sent=input_ref.content_hash, own=own_ref and own_ref.content_hash)

    def closed(self, request_id: str, answered: ModelAnswered) -> None:
        """Record how a request ended, and what it cost."""
        scope = self._scope
        in_task = self._is_current(request_id)
        self._forget(request_id)
        if request_id in self._main:
            del self._main[request_id]
            self.last = answered if in_task else self.last
        self._end()
        try:
            if scope.recorder.broken is None:
                self._write_end(request_id, answered, in_task=in_task)
        finally:  # after its usage is counted, so that in between nothing else takes the room
            self._reservations.settle(request_id, answered.usage)

    def _write_end(self, request_id: str, answered: ModelAnswered, *, in_task: bool) -> None:
        scope = self._scope
        scope.journal.write(
            ev.RequestCompleted(
                request_id=request_id,
                status=answered.status,
                duration_ms=answered.duration_ms,
                http_status=answered.http_status,
                time_to_first_byte_ms=answered.time_to_first_byte_ms,
            ),
            in_task=in_task,
        )
        if answered.usage is None:
            return
        before = scope.state.spent
        scope.journal.write(_usage(request_id, answered, answered.usage), in_task=in_task)
        self._spending.follow(scope.state, before)

    async def denied(self, call: WireCall) -> None:
        """Record a denied call; it is committed when this returns. The end of its task waits for it."""
        self._begin()
        try:
            await super().denied(call)
        finally:
            self._end()

    async def keep(self, exchange: bytes) -> None:
        """Store a recorded exchange as an artifact of the session."""
        self._begin()
        try:
            scope = self._scope
            ref = await scope.put_artifact(exchange, "application/json", "exchange")
            scope.journal.write(ev.ArtifactCreated(artifact=ref, reason="exchange"))
            await scope.recorder.settle()
        finally:
            self._end()

    # --- inside ---------------------------------------------------------------------------------------------

    def _no_login(self, asked: ModelAsked) -> Refused | None:
        if asked.lacks is None:
            return None
        message = (
            f"There is no key for the model any more, and the runtime has no login of its own. Set {asked.lacks}"
            " where CodeSDK runs, or store one with `codesdk keys add`; then start the task again."
        )
        return self._refuse(ErrorInfo(code="AUTH_REQUIRED", message=message, retryable=False))

    def _refusal(self, asked: ModelAsked) -> Refused | None:
        scope = self._scope
        principal = self._spending.standing(scope.state.principal)
        standing = find_over(scope.state, principal)
        if standing is not None and asked.asks_no_model:  # a runtime can go on without an answer to these
            return Refused(standing.error.message)
        if standing is not None:
            return self._refuse(standing.error, standing)
        if asked.asks_no_model:  # these have no price, and asking again changes nothing
            return None
        if limits_cost(scope.state, principal) and asked.price_of(Tokens()) is None:
            message = (
                f"The price of the model {scope.redactor.text(asked.model or '')} is not known, so a cost budget cannot be kept."
                " Limit tokens or requests instead."
            )
            return self._refuse(ErrorInfo(code="BUDGET_EXCEEDED", message=message, retryable=False))
        if self._loops(asked.content):
            message = (
                f"The runtime asked the model the same thing more than {scope.ports.limits.max_same_requests} times"
                " within a minute. It was stopped; start the task again, perhaps with another wording."
            )
            return self._refuse(ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=False))
        return None

    def _refuse(self, cause: ErrorInfo, excess: Standing | None = None) -> Refused:
        """End the task: without this request its runtime cannot go on."""
        self._scope.halt(cause, excess)
        return Refused(cause.message)

    def _loops(self, content: int) -> bool:
        """Return whether the runtime asks the same again and again for one task, as one that is stuck does."""
        now = asyncio.get_running_loop().time()
        task = self._scope.state.task
        # Somebody who starts the same task over and over may have the same asked each time.
        content = hash((content, task and task.task_id))
        # A hash of the content is enough: a runtime that loops sends the very same request.
        recent = [one for one in self._recent if now - one[0] < LOOP_WINDOW_S]
        self._recent = [*recent[1 - MAX_RECENT :], (now, content)]
        same = sum(known == content for _, known in self._recent)
        return same > self._scope.ports.limits.max_same_requests

    def _begin(self) -> None:
        self._open += 1

    def _end(self) -> None:
        self._open -= 1
        self._one_ended.wake()


def _usage(request_id: str, answered: ModelAnswered, tokens: Tokens) -> ev.UsageReported:
    """Return what the gateway saw. A provider's figures are bounded as a runtime's are, but never dropped."""
    counts = msgspec.structs.asdict(tokens)
    cost = answered.cost_usd
    return ev.UsageReported(
        **{name: min(max(0, count), ev.MAX_REPORTED_TOKENS) for name, count in counts.items()},
        model=answered.model,
        cost_usd=None if cost is None else min(max(0.0, cost), ev.MAX_REPORTED_COST_USD),
        source="gateway",
        request_id=request_id,
        estimated=answered.estimated,
    )


def _document(wire: str, split: SplitInput) -> dict[str, Any]:
    parts = {name: _hashes(part) for name, part in split.parts.items()}
    return {"format": EXACT, "wire": wire, "fields": split.fields, "parts": parts}


async def _nothing() -> None:
    """Return None where something else may be awaited."""


def _parts(exact: ExactInput) -> Iterable[bytes]:
    """Return the parts that are not stored yet."""
    own = {} if exact.own is None else exact.own.parts
    for part in (*exact.parts.values(), *own.values()):
        parts = part if isinstance(part, list) else [part]
        yield from (one.data for one in parts if one.data is not None)


def _hashes(part: ExactPart | list[ExactPart]) -> str | list[str]:
    return [one.content_hash for one in part] if isinstance(part, list) else part.content_hash


def _texts(message: Message) -> Iterable[str]:
    for block in message.content:
        if isinstance(block, Text):
            yield block.text
        elif isinstance(block, Code):
            yield block.code


def _results(message: Message) -> Iterable[str]:
    return (_as_text(block.result) for block in message.content if isinstance(block, ToolResult))


def _as_text(result: Any) -> str:
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings(list(cast("dict[str, Any]", value).values()))
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _strings(inner)
