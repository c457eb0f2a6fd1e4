"""How an attempt of a tool call is opened: its input made storable, and a carried call issued again."""

from collections.abc import Mapping
from typing import Any

import msgspec

from codesdk.contract.canonical import CanonicalError, hash_json
from codesdk.contract.errors import NotFound, StorageFailure
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.tools import Evaluation, ToolSpec
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import POLICY, judge, unfit_to_run
from codesdk.engine.log.state import CallState, Carried
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.validation import MAX_DEPTH, is_deep
from codesdk.policy import decide
from codesdk.redaction import Redactor


class Taken(msgspec.Struct, frozen=True):
    """An input as it is stored, its hash, and whether a secret was taken out of it."""

    stored: Any
    digest: str
    redacted: bool


def take_input(redactor: Redactor, value: Any) -> Taken:
    """Return an input as it can be stored. Raise `CanonicalError` if it cannot."""
    redacted = redactor.value(value)
    digest = hash_json(redacted)
    data = msgspec.json.encode(redacted)
    if is_deep(data):
        raise CanonicalError(f"it is nested deeper than {MAX_DEPTH} levels")
    stored = msgspec.json.decode(data)
    if stored != redacted:  # a set or a tuple: what is stored is what counts
        digest = hash_json(stored)
    return Taken(stored, digest, redacted is not value)


async def place(scope: SessionScope, value: Any) -> tuple[Any, ArtifactRef | None]:
    """Return an input for its event: inline while it is small, else by reference."""
    data = msgspec.json.encode(value)
    if len(data) <= scope.settings.input_inline_bytes:
        return value, None
    return msgspec.UNSET, await scope.put_artifact(data, "application/json", "input")


async def issue_again(
    scope: SessionScope, specs: Mapping[str, ToolSpec], carried: Carried
) -> tuple[CallState, Any]:
    """Open the next attempt of a call that was approved after a crash, decided: approved if it can run."""
    value = await _stored_input(scope, carried)
    lost = value is msgspec.UNSET
    inline, ref = (value, carried.input_ref) if lost else await place(scope, value)
    call = ledger.request(
        scope.journal,
        name=carried.name,
        tool_class=carried.tool_class,
        input_hash=carried.input_hash if lost else hash_json(value),
        input=inline,
        input_ref=ref,
        input_redacted=carried.input_redacted,
        again=carried.identity,
    )
    problem = "Its stored input is gone." if lost else unfit_to_run(specs, carried, call)
    if problem is not None:
        ledger.evaluate(scope.journal, call, Evaluation(source="codesdk", result="deny", reason=problem))
        ledger.deny(scope.journal, call, lifecycle.ENGINE, problem)
    else:
        _decide_again(scope, specs, carried, call, value)
    return call, value


def _decide_again(
    scope: SessionScope, specs: Mapping[str, ToolSpec], carried: Carried, call: CallState, value: Any
) -> None:
    """Let a call run that a person approved, unless the policy of now forbids it."""
    answer = Evaluation(source="user", result="allow", rule="carried", reason=carried.reason)
    opinions = [*judge(scope, specs, call, value), answer]
    for opinion in opinions:
        ledger.evaluate(scope.journal, call, opinion)
    decided = decide(opinions)
    if decided.result == "deny":
        ledger.deny(scope.journal, call, POLICY, decided.reason or f"Denied by {decided.rule}.")
    else:
        ledger.approve(scope.journal, call, carried.by or lifecycle.ENGINE, carried.reason)


async def _stored_input(scope: SessionScope, carried: Carried) -> Any:
    try:
        return msgspec.json.decode(await scope.ports.blobs.get(carried.input_ref.content_hash))
    except (NotFound, StorageFailure, ValueError):
        return msgspec.UNSET
