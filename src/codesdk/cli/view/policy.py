"""Decisions of a policy → lines for people."""

from collections.abc import Sequence

from rich.text import Text

from codesdk.cli.view.gist import plural
from codesdk.cli.view.safe import one_line
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Evaluation, Verdict
from codesdk.engine import ReplayedDecision
from codesdk.policy import Looked, standing

_STYLES: dict[Verdict, str] = {"allow": "green", "ask": "yellow", "deny": "red"}


def explanation(
    question: PolicyQuestion,
    looked: Sequence[Looked],
    opinions: Sequence[Evaluation],
    decision: Evaluation,
) -> list[Text]:
    """Return the call, the rules that were checked, the opinions on it, and the decision."""
    lines = [_call(question), *_touched(question), Text()]
    width = max((len(name) for name in _names(looked, opinions)), default=0)
    for one in looked:
        matched = one.missed is None
        line = Text.assemble("  ", ("✓" if matched else "·", "green" if matched else "dim"))
        line.append(f" {one.rule:<{width}}  ", "" if matched else "dim")
        line.append(f"{one.result:<5}", _STYLES[one.result] if matched else "dim")
        line.append("  matches" if matched else f"  the {one.missed} does not match", "dim")
        lines.append(line)
    counted = standing(opinions)
    for opinion in opinions:
        if opinion.rule not in {one.rule for one in looked}:
            line = Text(f"    {opinion.rule:<{width}}  ")
            line.append(f"{opinion.result:<5}", _STYLES[opinion.result])
            line.append("" if opinion in counted else "  does not count: a rule decides", "dim")
            lines.append(line)
    lines += [Text(), _outcome(decision)]
    return lines


def second_opinions(
    session_id: str, calls: Sequence[ReplayedDecision], notable: Sequence[ReplayedDecision]
) -> list[Text]:
    """Return a session's calls that would be decided differently, and those where that is unsure."""
    differing = sum(call.differs for call in calls)
    said = f"{differing} would be decided differently" if differing else "all would be decided the same"
    mark = ("✗ ", "yellow") if differing else ("✓ ", "green")
    lines = [Text.assemble(mark, f"{session_id}: {plural(len(calls), 'call')}, {said}")]
    for call in notable:
        line = Text(f"  seq {call.seq}: {one_line(call.summary, 100)}  ")
        line.append(call.before.result, _STYLES[call.before.result])
        line.append(" → ")
        line.append(call.after.result, _STYLES[call.after.result])
        line.append(f"  by {call.after.rule}", "dim")
        lines.append(line)
        if call.unsure:
            lines.append(Text(f"    unsure: {call.unsure}", "yellow"))
    return lines


def _call(question: PolicyQuestion) -> Text:
    line = Text(one_line(question.name), "bold")
    line.append(f"  class {question.tool_class}, mode {question.permission_mode}", "not bold dim")
    return line


def _touched(question: PolicyQuestion) -> list[Text]:
    touched = question.subjects
    named = (("path", touched.paths), ("host", touched.hosts), ("command", touched.argv))
    return [Text(f"  {name}: {one_line(' '.join(values))}", "dim") for name, values in named if values]


def _names(looked: Sequence[Looked], opinions: Sequence[Evaluation]) -> list[str]:
    return [one.rule for one in looked] + [opinion.rule or "" for opinion in opinions]


def _outcome(decision: Evaluation) -> Text:
    line = Text("→ ")
    line.append(decision.result, f"bold {_STYLES[decision.result]}")
    line.append(f", by {decision.rule}: {one_line(decision.reason or '')}")
    return line
