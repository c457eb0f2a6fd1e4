"""An extension's answer: which questions it may answer, what it outweighs, and that `verify` finds one it may not give."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.extensions.rig import Extensions, extended, session_in

from codesdk.contract.actions import AnswerQuestion, ApproveCall, Caller
from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.records import StoredFrame
from codesdk.contract.tools import Actor, Evaluation
from codesdk.engine.checks.rules_log import Checker
from codesdk.policy import decide, may_answer, parse_policy

APPROVES = """
def handle(event, tools):
    return {"kind": "action_request", "action_type": "approval.decide", "payload": {"decision": "approve"}}
def register(registry): registry.on("approval.requested", handle)
"""
HELPER = "extension:helper"
YES = Evaluation(source="extension", result="allow", rule=HELPER)


def rule(result: Any, *names: str, ident: str = "r") -> Evaluation:
    return Evaluation(source="codesdk", result=result, rule=ident, answer_by=list(names))


def test_a_yes_counts_where_every_question_names_the_extension():
    assert may_answer(HELPER, [rule("ask", HELPER)])
    assert not may_answer(HELPER, [rule("ask")])
    assert not may_answer(HELPER, [rule("ask", "extension:other")])
    assert not may_answer(HELPER, [rule("allow")])
    assert not may_answer(HELPER, [])
    assert not may_answer(HELPER, [rule("ask", HELPER), rule("ask", ident="q")])
    assert not may_answer(HELPER, [rule("ask", HELPER), rule("deny", ident="d")])


verdicts = st.sampled_from(["allow", "ask", "deny"])
names = st.lists(st.sampled_from([HELPER, "extension:other"]), max_size=2)
rules = st.builds(
    lambda result, by, ident: rule(result, *by, ident=ident), verdicts, names, st.sampled_from("abc")
)
runtimes = st.builds(
    lambda result: Evaluation(source="runtime", result=result, rule="runtime:policy"), verdicts
)


@given(st.lists(st.one_of(rules, runtimes), max_size=4))
def test_a_yes_of_an_extension_loosens_only_what_it_may_answer(said: list[Evaluation]):
    before, after = decide(said), decide([*said, YES])
    if after.result == "allow" and before.result != "allow":
        asking = [one for one in said if one.result == "ask"]
        assert asking
        assert all(HELPER in one.answer_by and one.source == "codesdk" for one in asking)
    if any(one.result == "deny" for one in said):
        assert after.result == "deny"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('result = "allow"\nanswer_by = ["extension:a"]', "only a rule that asks can be answered"),
        ('result = "ask"\nanswer_by = ["a"]', "an entry is `extension:` and the name"),
        ('result = "ask"\nanswer_by = ["user:ann"]', "an entry is `extension:` and the name"),
        ('result = "ask"\nanswer_by = "extension:a"', "Expected `array`"),
    ],
)
def test_a_rule_with_another_answer_by_does_not_load(text: str, words: str):
    with pytest.raises(InvalidRequest, match=words):
        parse_policy(f'[[rules]]\nid = "r"\n{text}\n', "test")


@pytest.mark.anyio
async def test_verify_finds_an_answer_that_no_rule_allowed(ext: Extensions, tmp_path: Path):
    ext.write("helper", APPROVES)
    async with extended(ext, tmp_path) as sdk:
        session = await session_in(sdk, tmp_path)
        await (await session.start("Go.")).result()
        stored = await sdk.archive.log.read(session.id, 0, 1_000)

    def findings(old: bytes, new: bytes) -> list[str]:
        checker = Checker(session.id)
        found = [
            finding
            for frame in stored
            for finding in checker.take(StoredFrame(seq=frame.seq, data=frame.data.replace(old, new)))
        ]
        return [finding.message for finding in found]

    assert findings(b"", b"") == []
    named = b',"answer_by":["extension:helper"]'
    assert any(named in frame.data for frame in stored)
    (wrong,) = findings(named, b',"answer_by":["extension:other"]')
    assert wrong.endswith("by an extension that no rule lets answer it")
    assert any(
        "cannot answer for the session" in one for one in findings(b'"scope":"once"', b'"scope":"session"')
    )


@pytest.mark.anyio
async def test_an_extension_cannot_grant_answer_in_words_or_raise_a_budget(ext: Extensions, tmp_path: Path):
    extension = Caller(actor=Actor(kind="extension", id="helper"))
    async with extended(ext, tmp_path) as sdk:
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                call = event.payload.tool_call_id or ""
                wide = ApproveCall(session_id=session.id, tool_call_id=call, scope="session")
                with pytest.raises(Forbidden, match="not for the session"):
                    await sdk.engine.execute(wide, extension)
                words = AnswerQuestion(
                    session_id=session.id, approval_id=event.payload.approval_id, text="yes"
                )
                with pytest.raises(Forbidden, match="Only people answer"):
                    await sdk.engine.execute(words, extension)
                await task.deny(call)
        assert await session.grants() == []
