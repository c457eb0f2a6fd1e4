import asyncio
import json
import time
from typing import Any

import pytest
from tests.channel.requirements import shows

from codesdk.channel import MARKER, Channel, ChannelClosed, ToolDenied
from codesdk.channel.constraints import unmet

READ = ("fs.read", "read", {"path": "docs/a.md"})


class Other:
    """The other side of a channel, in memory: answers each request as `answer` says."""

    def __init__(self, answer: Any = "allow", **fields: Any) -> None:
        self.said: list[dict[str, Any]] = []
        self.answer = answer
        self.fields = fields
        self.news = asyncio.Event()
        self.channel = Channel(self.take, timeout_s=None)

    def take(self, line: bytes) -> None:
        assert line.startswith(MARKER)
        assert line.endswith(b"\n")
        self.said.append(event := json.loads(line[len(MARKER) :]))
        self.news.set()
        if event["type"] == "tool.request" and event["requires_policy"] and self.answer is not None:
            self.command("policy.decision", id=event["id"], decision=self.answer, reason="so", **self.fields)

    async def heard(self, count: int) -> None:
        """Wait until so much was said."""
        while len(self.said) < count:
            self.news.clear()
            await self.news.wait()

    def command(self, kind: str, **fields: Any) -> None:
        given = {"v": 1, "type": kind, "ts": int(time.time() * 1000), **fields}
        self.channel.feed(json.dumps(given).encode() + b"\n")

    def results(self) -> list[tuple[bool, Any]]:
        found = [event for event in self.said if event["type"] == "tool.result"]
        return [(event["ok"], event.get("output", event.get("error"))) for event in found]


@shows("9-loop", "2.2-executor", "1.1-waits", "3.2-decision")
async def test_an_allowed_call_runs_and_its_result_is_reported():
    other = Other()
    async with other.channel.tool(*READ, rationale="to know") as call:
        call.output = "text"
    request, result = other.said
    assert (request["tool"], request["action"], request["rationale"]) == ("fs.read", "read", "to know")
    assert request["requires_policy"] is True
    assert (result["id"], result["ok"], result["output"]) == (request["id"], True, "text")


@shows("3.2-ask")
@pytest.mark.parametrize("answer", ["deny", "ask"])
async def test_a_denied_call_does_not_run(answer: str):
    other = Other(answer)
    with pytest.raises(ToolDenied, match="so"):
        async with other.channel.tool(*READ):
            raise AssertionError("it ran")
    assert other.results() == [(False, "so")]


async def test_what_a_call_raises_is_its_error():
    other = Other()
    with pytest.raises(ZeroDivisionError):
        async with other.channel.tool(*READ):
            raise ZeroDivisionError("by zero")
    assert other.results() == [(False, "by zero")]


@shows("4.2-same-id", "3.2-matching", "1.1-control")
async def test_only_the_decision_with_its_own_id_counts():
    other = Other(None)
    waiting = [asyncio.create_task(asked(other.channel, name)) for name in ("one", "two")]
    await other.heard(2)
    first, second = (event["id"] for event in other.said)
    other.command("policy.decision", id=second, decision="deny", reason="second")
    other.command("policy.decision", id=first, decision="allow")
    assert await asyncio.gather(*waiting) == [None, "second"]


async def asked(channel: Channel, tool: str) -> str | None:
    try:
        async with channel.tool(tool, "exec", {}):
            return None
    except ToolDenied as denied:
        return str(denied)


@shows("3.2-unknown")
async def test_a_decision_on_an_unknown_id_is_ignored_with_a_warning_and_a_second_one_without():
    other = Other()
    other.command("policy.decision", id="nobody", decision="allow")
    assert [(event["type"], event["id"], event["stage"]) for event in other.said] == [
        ("tool.progress", "nobody", "warning")
    ]
    async with other.channel.tool(*READ):
        pass
    before = len(other.said)
    other.command("policy.decision", id=other.said[1]["id"], decision="deny")
    assert len(other.said) == before


@shows("4.2-timeout", "3.3-timeout")
async def test_no_answer_in_time_is_a_no():
    other = Other(None)
    other.command("policy.ping", id="p", capabilities=["policy.decision.v1"], timeout_ms=1)
    with pytest.raises(ToolDenied, match="policy timeout"):
        async with other.channel.tool(*READ):
            raise AssertionError("it ran")
    assert other.results() == [(False, "policy timeout")]


@shows("3.3-detection", "3.3-capabilities")
async def test_a_ping_tells_that_somebody_decides_and_is_acknowledged():
    other = Other()
    assert await other.channel.ready(0) is False
    other.command("policy.ping", id="p", capabilities=["policy.decision.v1"])
    assert await other.channel.ready(0) is True
    assert [(event["type"], event["id"]) for event in other.said] == [("policy.ack", "p")]


@shows("3.4-obeyed")
@pytest.mark.parametrize("how", ["abort", "end"])
async def test_an_abort_and_the_end_of_stdin_deny_what_waits_and_what_comes(how: str):
    other = Other(None)
    ended: list[str] = []
    other.channel.on_abort = ended.append
    waiting = asyncio.create_task(asked(other.channel, "one"))
    await other.heard(1)
    if how == "abort":
        other.command("policy.abort", id="a", reason="enough", code="user_cancel")
    else:
        other.channel.feed(b"")
    why = await waiting
    assert why == ("enough" if how == "abort" else "Nobody decides any more: stdin has ended.")
    assert other.results() == [(False, why)]
    with pytest.raises(ChannelClosed):
        async with other.channel.tool(*READ):
            raise AssertionError("it ran")
    assert ended == [why]


@shows("3.2-constraints")
@pytest.mark.parametrize(
    ("constraints", "args", "kept"),
    [
        ({"paths": ["docs/**"]}, {"path": "docs/a/b.md"}, True),
        ({"paths": ["docs/*.md"]}, {"path": "docs/a.md"}, True),
        ({"paths": ["docs/*.md"]}, {"path": "docs/a/b.md"}, False),
        ({"paths": ["docs/**"]}, {"path": "docs/../secret"}, False),
        ({"paths": ["docs/**"]}, {"path": "/etc/passwd"}, False),
        ({"paths": ["docs/**"]}, {"files": ["docs/a", "src/b"]}, False),
        ({"paths": ["docs/**"]}, {"command": "rm"}, False),
        ({"domains": ["example.com"]}, {"url": "https://api.example.com/x"}, True),
        ({"domains": ["example.com"]}, {"url": "https://example.com.evil.org/"}, False),
        ({"domains": ["example.com"]}, {"host": "EXAMPLE.com."}, True),
        ({"moon": ["full"]}, {"path": "docs/a"}, False),
        ({"paths": "docs"}, {"path": "docs/a"}, False),
        ({}, {}, True),
    ],
)
def test_a_constraint_is_kept_or_the_call_does_not_run(constraints: Any, args: Any, kept: bool):
    assert (unmet(constraints, args) is None) is kept


async def test_a_call_outside_of_its_constraints_is_denied():
    other = Other(constraints={"paths": ["src/**"]})
    with pytest.raises(ToolDenied, match="constraint paths"):
        async with other.channel.tool(*READ):
            raise AssertionError("it ran")


@shows("3.2-expiry")
async def test_a_decision_that_has_expired_is_asked_for_again():
    other = Other(None)
    waiting = asyncio.create_task(asked(other.channel, "one"))
    await other.heard(1)
    old = int(time.time() * 1000) - 5_000
    first = other.said[0]["id"]
    line = {
        "v": 1,
        "type": "policy.decision",
        "ts": old,
        "id": first,
        "decision": "allow",
        "expires_in_ms": 1000,
    }
    other.channel.feed(json.dumps(line).encode() + b"\n")
    await other.heard(3)
    assert [event["type"] for event in other.said] == ["tool.request", "tool.result", "tool.request"]
    assert (other.said[1]["id"], other.said[1]["error"]) == (first, "decision expired")
    assert other.said[2]["id"] != first
    other.command("policy.decision", id=other.said[2]["id"], decision="allow", expires_in_ms=60_000)
    assert await waiting is None


async def test_decisions_that_are_always_too_old_end_in_a_no():
    other = Other(expires_in_ms=0)
    other.fields["ts"] = 1
    with pytest.raises(ToolDenied, match="expired"):
        async with other.channel.tool(*READ):
            raise AssertionError("it ran")
    assert len([event for event in other.said if event["type"] == "tool.request"]) == 4


async def test_commands_may_come_in_pieces_and_among_noise():
    other = Other(None)
    waiting = asyncio.create_task(asked(other.channel, "one"))
    await other.heard(1)
    decision = {"v": 1, "type": "policy.decision", "ts": 1, "id": other.said[0]["id"], "decision": "allow"}
    data = b"noise\n\xff\n{}\n" + json.dumps(decision).encode() + b"\n"
    for place in range(len(data)):
        other.channel.feed(data[place : place + 1])
    assert await waiting is None


async def test_a_channel_that_nobody_reads_denies():
    def broken(line: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(ChannelClosed, match="Nobody reads"):
        async with Channel(broken).tool(*READ):
            raise AssertionError("it ran")
