"""An ordered list of rules → its opinion on a call.

The first rule that matches decides; if none does, the permission mode does. Pure: rules are compiled
once, and the only state is a cache of which rules can match which tool.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar, get_args

import msgspec

from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import UNKNOWN_SUBJECT, Evaluation, Subjects, ToolClass, Verdict
from codesdk.policy.modes import judge_mode
from codesdk.policy.patterns import (
    BadPattern,
    PathPattern,
    Predicate,
    host_pattern,
    is_short,
    tidy_host,
    tidy_path,
    tool_pattern,
)

_REMEMBERED = 1024
_EXTENSION = re.compile(r"extension:[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?")
_DEFAULT_REASON: dict[Verdict, str] = {
    "allow": "The rule {id} allows it.",
    "ask": "The rule {id} asks before this is done.",
    "deny": "The rule {id} forbids it. Do the work without it.",
}

OneOrMore = str | list[str]
S = TypeVar("S", bound=str)
P = TypeVar("P", bound=Predicate)


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. Every given field must match; an omitted field matches everything."""

    id: str
    result: Verdict
    tool: OneOrMore | None = None
    tool_class: ToolClass | list[ToolClass] | None = msgspec.field(name="class", default=None)
    path: OneOrMore | None = None
    host: OneOrMore | None = None
    argv: list[str] | None = None
    reason: str | None = None
    answer_by: list[str] = []
    """For a rule that asks: the extensions that may answer besides people, as `extension:NAME`. Default: none."""


def as_list(given: S | list[S]) -> list[S]:
    """Return one or more as a list."""
    return given if isinstance(given, list) else [given]


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was tried: `missed` is the field that did not match, or None if the rule matched."""

    rule: str
    result: Verdict
    missed: str | None


class RulePolicy:
    """Rules on top of the permission mode. Raise `BadRule` if one of them is not valid."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._compiled = tuple(_Compiled(rule) for rule in rules)
        self._concerned: dict[_Key, _Concerned] = {}

    def evaluate(self, question: PolicyQuestion) -> Evaluation:
        """Return the opinion of the first rule that matches, or else of the permission mode."""
        subjects = question.subjects
        paths = subjects.paths
        # What a call names decides which rules can match it: all calls of a kind share the answer.
        key = (question.name, question.tool_class, not paths, not subjects.hosts, not subjects.argv)
        concerned = self._concerned.get(key)
        if concerned is None:
            concerned = self._remember(key)
        if concerned.rules:
            rule = concerned.speaker(subjects)
            if rule is not None:
                return rule.opinion
        return judge_mode(question.permission_mode, question.tool_class)

    def look(self, question: PolicyQuestion) -> list[Looked]:
        """Return the rules tried, in order, up to the one that matches."""
        looked: list[Looked] = []
        for rule in self._compiled:
            missed = rule.missed(question)
            looked.append(Looked(rule=rule.rule.id, result=rule.rule.result, missed=missed))
            if missed is None:
                break
        return looked

    def _remember(self, key: "_Key") -> "_Concerned":
        """Find the rules that can match calls of this kind, once for all of them."""
        name, kind, *absent = key
        found = [
            rule for rule in self._compiled if rule.concerns(name, kind) is None and not rule.needs(*absent)
        ]
        concerned = _Concerned(found)
        if len(self._concerned) < _REMEMBERED:  # names come from models, so the cache is bounded
            self._concerned[key] = concerned
        return concerned


_Key = tuple[str, str, bool, bool, bool]
"""A tool, its class, and whether a call names no path, no host, no command."""


class BadRule(ValueError):
    """The rule is not valid; `field` is the wrong one, the message says why."""

    def __init__(self, rule: str, field: str, why: str) -> None:
        super().__init__(why)
        self.rule = rule
        self.field = field


def _tidied(subjects: Subjects) -> Subjects:
    """Return what a call touches in the form that patterns are compared with."""
    return Subjects(
        paths=[tidy_path(path) for path in subjects.paths],
        hosts=[tidy_host(host) for host in subjects.hosts],
        argv=subjects.argv,
    )


class _Concerned:
    """The rules that can match calls of one kind. If all look only at a path, they are one expression."""

    __slots__ = ("_at_once", "rules")

    def __init__(self, rules: "list[_Compiled]") -> None:
        self.rules = tuple(rules)
        regexes = [rule.path_regex() for rule in rules]
        # The empty group behind each alternative tells by its number which rule matched.
        whole = "|".join(f"(?:{regex})()" for regex in regexes)
        self._at_once = None if None in regexes else re.compile(whole, re.DOTALL).fullmatch

    def speaker(self, subjects: Subjects) -> "_Compiled | None":
        """Return the first rule that matches."""
        if self._at_once is not None and len(subjects.paths) == 1 and subjects.paths[0] != UNKNOWN_SUBJECT:
            path = tidy_path(subjects.paths[0])
            if is_short(path):
                found = self._at_once(path)
                return None if found is None else self.rules[(found.lastindex or 1) - 1]
        seen = _tidied(subjects)
        return next((rule for rule in self.rules if rule.touches(seen) is None), None)


class _Compiled:
    """A compiled rule. An allow must match everything a call touches; for ask or deny, any part is enough."""

    __slots__ = ("_all", "_argv", "_classes", "_host", "_path", "_tool", "opinion", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._all = rule.result == "allow"
        self._tool = _compile(rule, "tool", rule.tool, tool_pattern)
        self._path = _compile(rule, "path", rule.path, PathPattern)
        self._host = _compile(rule, "host", rule.host, host_pattern)
        self._classes = frozenset(
            get_args(ToolClass) if rule.tool_class is None else as_list(rule.tool_class)
        )
        self._argv = rule.argv
        if rule.answer_by and rule.result != "ask":
            raise BadRule(rule.id, "answer_by", "only a rule that asks can be answered")
        if not all(_EXTENSION.fullmatch(name) for name in rule.answer_by):
            raise BadRule(rule.id, "answer_by", "an entry is `extension:` and the name of an extension")
        if rule.argv == []:
            raise BadRule(rule.id, "argv", "an empty list would match every command; leave it out for that")
        self.opinion = Evaluation(
            source="codesdk",
            result=rule.result,
            rule=rule.id,
            reason=rule.reason or _DEFAULT_REASON[rule.result].format(id=rule.id),
            answer_by=rule.answer_by,
        )

    def concerns(self, name: str, kind: str) -> str | None:
        """Return the field that rules a tool out, or None if the rule can match its calls."""
        if self._tool is not None and not self._tool(name):
            return "tool"
        return None if kind in self._classes else "class"

    def needs(self, no_path: bool, no_host: bool, no_argv: bool) -> bool:
        """Return whether the rule needs something that calls of this kind do not name."""
        return bool((no_path and self._path) or (no_host and self._host) or (no_argv and self._argv))

    def path_regex(self) -> str | None:
        """Return the rule as a regular expression on a call's only path, or None if that is not enough."""
        if self._host is not None or self._argv is not None:
            return None
        return ".*" if self._path is None else self._path.regex

    def touches(self, seen: Subjects) -> str | None:
        """Return the field that does not match what a call touches, or None."""
        if self._path is not None and not self._fits(self._path, seen.paths):
            return "path"
        if self._host is not None and not self._fits(self._host, seen.hosts):
            return "host"
        if self._argv is not None and not self._begins(seen.argv):
            return "argv"
        return None

    def missed(self, question: PolicyQuestion) -> str | None:
        """Return the first field that does not match, or None if all do."""
        return self.concerns(question.name, question.tool_class) or self.touches(_tidied(question.subjects))

    def _begins(self, argv: Sequence[str]) -> bool:
        assert self._argv is not None, "only for a rule about commands"
        if UNKNOWN_SUBJECT in argv[:1]:
            return not self._all
        return argv[: len(self._argv)] == self._argv

    def _fits(self, fits: Predicate, values: Sequence[str]) -> bool:
        if not values:  # a call that names no path (or host) never matches a rule about paths (or hosts)
            return False
        if UNKNOWN_SUBJECT in values:
            return not self._all
        if len(values) == 1:
            return fits(values[0])
        return all(map(fits, values)) if self._all else any(map(fits, values))


def _compile(rule: Rule, field: str, given: OneOrMore | None, make: Callable[[Sequence[str]], P]) -> P | None:
    if given is None:
        return None
    patterns = as_list(given)
    if not patterns or not all(patterns):
        raise BadRule(rule.id, field, "an empty pattern matches nothing; leave the field out, or give one")
    try:
        return make(patterns)
    except BadPattern as error:
        raise BadRule(rule.id, field, str(error)) from None
