"""All opinions on a call → the one that decides.

The strictest opinion that stands decides: deny before ask before allow. All stand, but for

- the mode's, where a rule speaks: the mode is what counts in the absence of rules;
- a question that was answered before: by a grant, which answers the one question it was given
  for, or by a person, whose yes answers all that were asked about this call.

So nothing ever outweighs a deny, and a runtime or an extension can make a decision
stricter, never looser. Used by the engine, by `codesdk policy` and by `verify`.
"""

from collections.abc import Collection, Sequence
from typing import Literal

from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Evaluation
from codesdk.policy.modes import MODE, judge_mode

GRANT = "grant:"
"""How the name of a grant's opinion begins; after it comes the name of the opinion whose question it answers."""
_NOBODY = Evaluation(source="codesdk", result="ask", rule="default", reason="Nothing allows this call.")


def decide(opinions: Sequence[Evaluation]) -> Evaluation:
    """Return the opinion that decides. If nothing that counts allows the call, it is asked about."""
    asking, allowing = None, _NOBODY
    for opinion in opinions if len(opinions) == 1 else standing(opinions):
        if opinion.result == "deny":
            return opinion
        if opinion.result == "ask":
            asking = asking or opinion
        elif opinion.source in ("codesdk", "user"):
            allowing = opinion
    return asking or allowing


def all_opinions(
    question: PolicyQuestion, ruled: Evaluation, granted: Collection[str] = ()
) -> list[Evaluation]:
    """Return CodeSDK's opinions on a call: the mode's, the policy's own if it has one, and the grants that apply.

    `granted` names those whose questions about this tool were answered for the session.
    """
    mode = judge_mode(question.permission_mode, question.tool_class)
    opinions = [mode] if ruled == mode else [mode, ruled]
    if granted:
        opinions += [grant_opinion(rule) for rule in open_questions(opinions) if rule in granted]
    return opinions


def standing(opinions: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the opinions that count, in their order."""
    kinds = [_kind(opinion) for opinion in opinions]
    ruled = "rule" in kinds
    agreed = any(opinion.source == "user" and opinion.result == "allow" for opinion in opinions)
    grants = {opinion.rule for opinion, kind in zip(opinions, kinds, strict=True) if kind == "grant"}
    return [
        opinion
        for opinion, kind in zip(opinions, kinds, strict=True)
        if not (ruled and kind == "mode")
        and not (opinion.result == "ask" and (agreed or f"{GRANT}{opinion.rule or ''}" in grants))
    ]


def open_questions(opinions: Sequence[Evaluation]) -> list[str]:
    """Return the names of those who still ask, or nothing if the call is denied anyway."""
    left = standing(opinions)
    if any(opinion.result == "deny" for opinion in left):
        return []
    return list(dict.fromkeys(opinion.rule or "" for opinion in left if opinion.result == "ask"))


def grant_opinion(rule: str) -> Evaluation:
    """Return what is said of a call when the question of a rule was answered for the whole session."""
    return Evaluation(
        source="codesdk", result="allow", rule=f"{GRANT}{rule}", reason="Approved for this session."
    )


def granted_rule(opinion: Evaluation) -> str | None:
    """Return whose question a grant answers, or None if this is no grant."""
    return (opinion.rule or "").removeprefix(GRANT) if _kind(opinion) == "grant" else None


def _kind(opinion: Evaluation) -> Literal["mode", "rule", "grant", "other"]:
    """Tell whose word this is: a rule's is whatever CodeSDK says that is neither the mode's nor a grant."""
    if opinion.source != "codesdk":
        return "other"
    rule = opinion.rule
    if rule is None:
        return "rule"
    if rule.startswith(MODE):
        return "mode"
    return "grant" if rule.startswith(GRANT) else "rule"
