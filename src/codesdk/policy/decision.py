"""All opinions on a call → the one that decides.

The strictest opinion that counts decides: deny before ask before allow. All count, except

- the mode's, if a rule matches: the mode is the default in the absence of rules;
- a question that has been answered: by a grant, which answers only the question it was given
  for; by a person, whose yes answers every question about this call; or by an extension, whose yes
  answers only what a rule asks that names it in `answer_by`.

So nothing outweighs a deny, and a runtime's own opinion can make a decision stricter, never looser.
"""

from collections.abc import Collection, Sequence
from typing import Literal

from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Evaluation
from codesdk.policy.modes import MODE, judge_mode

GRANT = "grant:"
"""Prefix of the name of a grant's opinion; the name of the opinion whose question it answers follows."""
_NOBODY = Evaluation(source="codesdk", result="ask", rule="default", reason="Nothing allows this call.")


def decide(opinions: Sequence[Evaluation]) -> Evaluation:
    """Return the opinion that decides. If no opinion that counts allows the call, ask."""
    asking, allowing = None, _NOBODY
    # The usual case is one opinion, which nothing can outweigh.
    for opinion in opinions if len(opinions) == 1 else standing(opinions):
        if opinion.result == "deny":
            return opinion
        if opinion.result == "ask":
            asking = asking or opinion
        # A runtime's own allow permits nothing, and an extension's only what it was let answer.
        elif opinion.source in ("codesdk", "user") or _answers_some(opinion, opinions):
            allowing = opinion
    return asking or allowing


def all_opinions(
    question: PolicyQuestion, ruled: Evaluation, granted: Collection[str] = ()
) -> list[Evaluation]:
    """Return CodeSDK's opinions on a call: the mode's, the policy's if it differs, and the grants that apply.

    `granted` names the opinions whose questions about this tool were answered for the whole session.
    """
    mode = judge_mode(question.permission_mode, question.tool_class)
    opinions = [mode] if ruled == mode else [mode, ruled]
    if granted:
        opinions += [grant_opinion(rule) for rule in open_questions(opinions) if rule in granted]
    return opinions


def standing(opinions: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the opinions that count, in the given order."""
    kinds = [_kind(opinion) for opinion in opinions]
    ruled = "rule" in kinds
    agreed = any(opinion.source == "user" and opinion.result == "allow" for opinion in opinions)
    grants = {opinion.rule for opinion, kind in zip(opinions, kinds, strict=True) if kind == "grant"}
    return [
        opinion
        for opinion, kind in zip(opinions, kinds, strict=True)
        if not (ruled and kind == "mode")
        and not (opinion.result == "ask" and (agreed or f"{GRANT}{opinion.rule or ''}" in grants))
        and not (opinion.answer_by and any(_answers(answer, opinion) for answer in opinions))
    ]


def open_questions(opinions: Sequence[Evaluation]) -> list[str]:
    """Return the names of the opinions that still ask; none if the call is denied anyway."""
    left = standing(opinions)
    if any(opinion.result == "deny" for opinion in left):  # nobody should be asked in vain
        return []
    return list(dict.fromkeys(opinion.rule or "" for opinion in left if opinion.result == "ask"))


def may_answer(name: str, opinions: Sequence[Evaluation]) -> bool:
    """Return whether an extension may answer: a question is open, and every rule that asks it names the extension."""
    asking = [opinion for opinion in standing(opinions) if opinion.result == "ask"]
    return bool(open_questions(opinions)) and all(name in opinion.answer_by for opinion in asking)


def grant_opinion(rule: str) -> Evaluation:
    """Return the opinion on a call if the question of a rule was answered for the whole session."""
    return Evaluation(
        source="codesdk", result="allow", rule=f"{GRANT}{rule}", reason="Approved for this session."
    )


def granted_rule(opinion: Evaluation) -> str | None:
    """Return the name of the opinion whose question a grant answers, or None if this is not a grant."""
    return (opinion.rule or "").removeprefix(GRANT) if _kind(opinion) == "grant" else None


def _answers(answer: Evaluation, asked: Evaluation) -> bool:
    """Return whether an opinion is the yes of an extension that a question's rule names."""
    return (
        answer.source == "extension"
        and answer.result == "allow"
        and asked.source == "codesdk"
        and asked.result == "ask"
        and answer.rule in asked.answer_by
    )


def _answers_some(answer: Evaluation, opinions: Sequence[Evaluation]) -> bool:
    return answer.source == "extension" and any(_answers(answer, asked) for asked in opinions)


def _kind(opinion: Evaluation) -> Literal["mode", "rule", "grant", "other"]:
    """Return whose opinion this is. A rule's is any of CodeSDK's that is neither a mode's nor a grant."""
    if opinion.source != "codesdk":
        return "other"
    rule = opinion.rule
    if rule is None:
        return "rule"
    if rule.startswith(MODE):
        return "mode"
    return "grant" if rule.startswith(GRANT) else "rule"
