"""A seeded generator → items that a runtime might yield, right and wrong. What `ChaosRuntime` says.

Pure: nothing here waits, or knows an engine.
"""

import asyncio
from random import Random
from typing import Any

from codesdk.contract.errors import ErrorInfo, InvalidRequest
from codesdk.contract.events import (
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    RequestCompleted,
    RequestStarted,
    RuntimeNotice,
    TaskCompleted,
    TaskStopRequested,
    UsageReported,
    UsageTotals,
)
from codesdk.contract.messages import AssistantBlock, Reasoning, Text
from codesdk.contract.runtime import Draft, Failed, Finished, Identified, ToolAnnouncement
from codesdk.contract.tools import Actor

BURST_MOST = 300
HUGE_CHARS = 200_000
_WORDS = ("yes", "no", "perhaps", "hello ", "{", "}", "\n", "\0", "é", "\U0001f600", "</s>", "")


class Nonsense:
    """Makes items for one task. `call_ids` are the calls that should be answered."""

    def __init__(self, rng: Random, tools: list[str]) -> None:
        self.call_ids: set[str | None] = set()
        self._rng = rng
        self._tools = tools
        self._count = 0
        self._said: list[Any] = []

    def good(self) -> list[Any]:
        """Return something that a good runtime says."""
        make = self._rng.choice((self._delta, self._delta, self._message, self._usage, self._request))
        items = make()
        self._said += items
        return items

    def call(self) -> list[Any]:
        """Return parallel calls of tools that are on offer."""
        if not self._tools:
            return self.good()
        items = [self._announce(self._rng.choice(self._tools), {"n": n}) for n in range(self._upto(3))]
        self.call_ids = {item.runtime_tool_call_id for item in items}
        self._said += items
        return items

    def burst(self) -> list[Any]:
        """Return many deltas at once."""
        return self._delta() * self._upto(BURST_MOST)

    def huge(self) -> list[Any]:
        """Return a very large delta, message or call."""
        text = "huge " * (self._upto(HUGE_CHARS) // 5)
        made = (
            Draft(OutputDelta(kind="text_delta", block_id="h.0", message_id=self._id("h"), delta=text)),
            Draft(OutputCompleted(message_id=self._id("h"), content=[Text(text=text)])),
            self._announce(self._tool(), {"text": text}),
            Draft(RuntimeNotice(kind="warning", message=text, details={}), raw={"text": text}),
        )
        return [self._rng.choice(made)]

    def duplicate(self) -> list[Any]:
        """Return something that was said before, or other contents under the same id."""
        if not self._said:
            return self.good()
        item = self._rng.choice(self._said)
        if isinstance(item, ToolAnnouncement) and self._rng.random() < 0.5:
            return [self._announce(item.name, {"other": True}, item.runtime_tool_call_id)]
        return [item, item]

    def bad_call(self) -> list[Any]:
        """Return a call of an unknown tool, or one with an invalid input."""
        deep: Any = []
        for _ in range(300):
            deep = [deep]
        inputs: tuple[Any, ...] = (
            {"invalid": "The tool does not like it."},
            None,
            "text",
            float("nan"),
            {"n": 2**80},
            {1: 2},
            {"half": "\ud800"},
            {"bytes": b"\xff"},
            object(),
            deep,
        )
        if self._rng.random() < 0.5:
            return [self._announce(self._tool(), self._rng.choice(inputs))]
        names: tuple[Any, ...] = ("no.such.tool", "", "x" * 1000, "\ud800", None, 7)
        return [self._announce(self._rng.choice(names), {}, self._rng.choice((None, "c", 7, "\ud800")))]

    def malformed(self) -> list[Any]:
        """Return something that is not an item at all."""
        return [
            self._rng.choice((None, 42, "text", b"\xff", [], {"type": "text"}, object(), Draft, Unshowable()))
        ]

    def wrong_types(self) -> list[Any]:
        """Return an item with fields of the wrong type."""
        loop: list[Any] = []
        loop.append(loop)
        odd: tuple[Any, ...] = (None, 7, -1, 1.5, "x", "\ud800", b"\xff", [], {}, [None], object(), loop)
        anything = self._rng.choice(odd)
        made = (
            Draft(anything),
            Draft(OutputDelta(kind=anything, block_id="b", message_id="m", delta="x")),
            Draft(OutputDelta(kind="text_delta", block_id=anything, message_id="m", delta="x")),
            Draft(OutputDelta(kind="text_delta", block_id="b", message_id=anything, delta="x")),
            Draft(OutputDelta(kind="text_delta", block_id="b", message_id="m", delta=anything)),
            Draft(OutputDelta(kind="code_delta", block_id="b", message_id="m", delta="x", language=anything)),
            Draft(OutputDelta(kind="text_delta", block_id="b", message_id="m", delta="x"), raw=anything),
            Draft(OutputCompleted(message_id=anything, content=[])),
            Draft(OutputCompleted(message_id=self._id("m"), content=anything)),
            Draft(OutputRetracted(block_ids=anything, reason="no reason")),
            Draft(RuntimeNotice(kind=anything, message="m", details=anything)),
            Draft(RequestCompleted(request_id=anything, status="ok", duration_ms=anything)),
            self._tokens(anything, None),
            self._tokens(1, anything),
            self._announce(self._tool(), {}, anything),
            Identified(model=anything, runtime_session_id="r"),
            Identified(runtime_session_id=anything),
        )
        return [self._rng.choice(made)]

    def forged(self) -> list[Any]:
        """Return an event that only the engine may write, or a notice that sounds like one."""
        end = TaskCompleted(text="", stop_reason="end_turn", usage=UsageTotals(), duration_ms=0)
        stop = TaskStopRequested(reason="forged", by=Actor(kind="user", id="somebody"))
        notice = RuntimeNotice(kind="stop_requested", message="forged", details={"by": {"kind": "user"}})
        payload: Any = self._rng.choice((end, stop, notice))
        return [Draft(payload)]

    def end(self) -> list[Any]:
        """Return the end of a stream, good or bad, and perhaps something after it."""
        anything: Any = self._rng.choice((None, 7, "\ud800", [], object()))
        error = ErrorInfo(code="MODEL_ERROR", message="The model gave up.", retryable=True)
        odd: Any = ErrorInfo(code=anything, message=anything, retryable=anything, details=anything)
        ends = (
            Finished(stop_reason="end_turn"),
            Finished(stop_reason="end_turn"),
            Finished(stop_reason=anything),
            Failed(error=error),
            Failed(error=odd),
            Failed(error=anything),
        )
        behind = self.good() if self._rng.random() < 0.3 else []
        return [self._rng.choice(ends), *behind]

    def error(self) -> BaseException:
        """Return an exception of a kind that adapters let escape."""
        kinds = (
            RuntimeError,
            OSError,
            ValueError,
            TimeoutError,
            KeyError,
            InvalidRequest,
            asyncio.CancelledError,
        )
        return self._rng.choice(kinds)(self._rng.choice(("chaos", "", "\ud800")))

    def _delta(self) -> list[Any]:
        kind: Any = self._rng.choice(
            ("text_delta", "text_delta", "reasoning_delta", "json_delta", "unknown_delta")
        )
        message = f"m{self._rng.randrange(4)}"
        text = self._rng.choice(_WORDS)
        return [Draft(OutputDelta(kind=kind, block_id=f"{message}.{kind}", message_id=message, delta=text))]

    def _message(self) -> list[Any]:
        message = f"m{self._rng.randrange(4)}"
        if self._rng.random() < 0.2:
            return [Draft(OutputRetracted(block_ids=[f"{message}.text_delta"], reason="chaos"))]
        content: list[AssistantBlock] = [Reasoning(text="hm"), Text(text=self._rng.choice(_WORDS))]
        content = content[: self._upto(3) - 1]
        return [Draft(OutputCompleted(message_id=message, content=content))]

    def _usage(self) -> list[Any]:
        return [self._tokens(self._upto(99), self._rng.choice((None, 0.25))), Identified(model="chaos-1")]

    def _request(self) -> list[Any]:
        request = self._id("req")
        started = Draft(RequestStarted(request_id=request, purpose="main"))
        return [started, Draft(RequestCompleted(request_id=request, status="ok", duration_ms=1))]

    def _tokens(self, count: Any, cost: Any) -> Draft:
        return Draft(
            UsageReported(
                model=None,
                input=count,
                output=count,
                cache_read=0,
                cache_write=0,
                reasoning=0,
                cost_usd=cost,
                source="runtime",
            )
        )

    def _announce(self, name: Any, given: Any, call_id: Any = None) -> ToolAnnouncement:
        return ToolAnnouncement(
            name=name,
            input=given,
            runtime_tool_call_id=self._id("c") if call_id is None else call_id,
            message_id=self._rng.choice((None, "m0", "m1", "m9")),
            index=self._rng.choice((None, 0, 1, 5)),
        )

    def _tool(self) -> str:
        return self._rng.choice(self._tools) if self._tools else "no.such.tool"

    def _id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _upto(self, most: int) -> int:
        return self._rng.randint(1, most)


class Unshowable:
    """Something that cannot even be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr today")
