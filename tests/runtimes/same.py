"""The events of a session → what happened, by subject, without what belongs to one runtime; and what may differ.

Every event is in one of the subjects, so that nothing differs unseen.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from codesdk.contract.events import Event
from codesdk.contract.messages import Message, Reasoning, Text, ToolResult, ToolUse

Summary = dict[str, Any]


class Difference(NamedTuple):
    """A subject in which runtimes may differ, which of them do, and why."""

    subject: str
    runtimes: frozenset[str] | None
    """None: any may."""
    why: str
    always: bool = True
    """Whether those runtimes differ each time, so that one that does not is no longer to be named."""


ANY = None
DIFFERENCES = (
    Difference("runtime.notice", ANY, "each says what it has to say of itself"),
    Difference("model.output.delta", ANY, "how a text is cut into pieces"),
    Difference("tool.call.announced", ANY, "a busy program tells of a call only after it made it"),
    Difference("messages without text", ANY, "only some end a message that has nothing but calls"),
    Difference("usage by the runtime", ANY, "what each reports on top of the gateway's figures"),
    Difference("side requests", ANY, "titles and the like, which some agents ask for by themselves"),
    Difference(
        "opinions of the runtime", ANY, "some have a policy of their own, which is judged beside ours"
    ),
    Difference(
        "thoughts",
        frozenset({"gemini-cli-core", "acp:gemini"}),
        "it takes the first words of a thought for its heading, and writes them in bold",
    ),
    Difference(
        "transcript",
        frozenset({"gemini-cli-core", "acp:gemini", "acp:codex-acp"}),
        "they make calls of one answer one after another, tell of each only then, and not of which answer it is",
    ),
    Difference(
        "order of calls",
        frozenset({"codex-sdk", "acp:codex-acp"}),
        "codex begins the calls of one answer at once, and tells of each when it has begun",
        always=False,
    ),
    Difference(
        "order of results",
        frozenset({"codex-sdk", "acp:codex-acp"}),
        "they stand in the order of their calls",
        always=False,
    ),
    Difference("requests", frozenset({"scripted"}), "it asks no model: it plays the script itself"),
    Difference("usage by the gateway", frozenset({"scripted"}), "nothing passes the gateway"),
    Difference("inputs", frozenset({"scripted"}), "nothing is sent, so nothing is captured as it was sent"),
)
"""What may differ, and why. Anything else fails the test."""
FREE = ("runtime.notice", "model.output.delta", "tool.call.announced")
"""Types of events of which only the number is kept."""


def summarize(events: Iterable[Event]) -> Summary:  # noqa: C901 - one branch for each kind of event
    """Return what happened."""
    found: Summary = defaultdict(list)
    calls: dict[str, list[str]] = defaultdict(list)
    others: Counter[str] = Counter()
    side: set[str] = set()
    for event in events:
        payload: Any = event.payload
        request = getattr(payload, "request_id", None)
        if event.type == "runtime.request.started" and payload.purpose != "main":
            side.add(payload.request_id)
        if request in side:
            found["side requests"].append(event.type)
        elif getattr(payload, "source", None) == "runtime" and event.type != "usage.reported":
            found["opinions of the runtime"].append(payload.result)
        elif event.type.startswith(("tool.call.", "tool.output.")) and event.type not in FREE:
            calls[payload.tool_call_id].append(_of_call(event.type, payload))
        elif event.type in ("approval.requested", "approval.answered"):
            found["questions"].append(_of_question(event.type, payload))
        elif event.type == "model.output.completed":
            _add_message(found, payload)
        elif event.type == "usage.reported":
            found[f"usage by the {payload.source}"].append((payload.input, payload.output))
        elif event.type == "model.input":
            found["inputs"].append(payload.capture)
        elif event.type in ("runtime.request.started", "runtime.request.completed"):
            found["requests"].append((event.type, getattr(payload, "http_status", None)))
        elif event.type == "task.completed":
            found["the end"] = (payload.text, payload.stop_reason)
            found["usage of the task"] = (payload.usage.input, payload.usage.output)
        elif event.type in FREE:
            found[event.type].append(1)
        else:
            others[event.type] += 1
    # Calls of one message run at once, so they are told apart and not in the order of their events.
    return {
        **found,
        "calls": sorted(calls.values()),
        "questions": sorted(found["questions"]),
        "other events": others,
    }


def outline(transcript: Sequence[Message]) -> Summary:
    """Return the messages of a transcript: who says and calls what, and by itself the order of calls and of results.

    Without thoughts, which are compared by themselves.
    """
    blocks = [block for message in transcript for block in message.content]
    return {
        "transcript": [(message.role, _contents(message)) for message in transcript],
        "order of calls": [_of_block(block) for block in blocks if isinstance(block, ToolUse)],
        "order of results": [_of_block(block) for block in blocks if isinstance(block, ToolResult)],
    }


def differences(one: Summary, other: Summary, runtime: str) -> dict[str, tuple[Any, Any]]:
    """Return the subjects in which another runtime's summary differs from the first, without those that may."""
    allowed = {d.subject for d in DIFFERENCES if d.runtimes is None or runtime in d.runtimes}
    return {
        subject: (one.get(subject), other.get(subject))
        for subject in sorted({*one, *other} - allowed)
        if one.get(subject) != other.get(subject)
    }


def _of_call(kind: str, payload: Any) -> str:
    match kind.rpartition(".")[2]:
        case "requested":
            return f"requested {payload.name} {payload.tool_class} {payload.input}"
        case "policy_evaluated":
            return f"{payload.source} says {payload.result} by {payload.rule}"
        case "approved" | "denied" as decision:
            return f"{decision} by {payload.by.kind}: {payload.reason}"
        case "completed" if kind == "tool.call.completed":
            ended = "error" if payload.is_error else "well"
            changed = [change.path for change in payload.changes]
            return f"completed {ended} by {payload.executed_by}, {changed}: {payload.result_preview}"
        case rest:
            return rest


def _contents(message: Message) -> list[str]:
    """Return the blocks of a message, its calls or results among them sorted."""
    said = [block for block in message.content if not isinstance(block, Reasoning)]
    sorted_calls = iter(sorted(_of_block(block) for block in said if not isinstance(block, Text)))
    return [block.text if isinstance(block, Text) else next(sorted_calls) for block in said]


def _of_block(block: Any) -> str:
    return f"{block.name} {block.input}" if isinstance(block, ToolUse) else str(block.result)


def _of_question(kind: str, payload: Any) -> str:
    if kind == "approval.requested":
        return f"requested: {payload.kind} {payload.summary}"
    return f"answered: {payload.decision} by {payload.by.kind}, {payload.reason}"


def _add_message(found: Summary, payload: Any) -> None:
    texts = [block.text for block in payload.content if isinstance(block, Text) and block.text]
    thoughts = [block.text for block in payload.content if isinstance(block, Reasoning) and block.text]
    if texts:
        found["texts"].append("".join(texts))
    if thoughts:
        found["thoughts"].append("".join(thoughts))
    if not texts and not thoughts:
        found["messages without text"].append(payload.partial)
