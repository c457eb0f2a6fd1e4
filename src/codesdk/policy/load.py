"""A TOML file → `RulePolicy`. Every error names the file, the rule and the field.

A rule may carry examples: calls it must match and calls it must not. They are checked here, so that a
file whose rules do not do what their author meant does not load.
"""

import re
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from codesdk.contract.arguments import path_text
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Subjects, ToolClass
from codesdk.contract.validation import split_error
from codesdk.policy.rules import BadRule, OneOrMore, Rule, RulePolicy, as_list

MAX_BYTES = 1_000_000
MAX_TRIES = 500_000
"""How often an example may be tried on a rule: each one is tried on every rule before its own."""
_ID = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call to try a rule on. Without a class, it gets one that the rule applies to."""

    tool: str
    tool_class: ToolClass | None = msgspec.field(name="class", default=None)
    path: OneOrMore = []
    host: OneOrMore = []
    argv: list[str] = []


class RuleTable(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as written in the file, with its examples."""

    match: list[Example] = msgspec.field(default_factory=list[Example])
    not_match: list[Example] = msgspec.field(default_factory=list[Example])


def load_policy(path: str | Path) -> RulePolicy:
    """Return the policy in a TOML file. Raise `InvalidRequest`, naming the place, if it is not valid."""
    source = path_text(path, "path")
    try:
        with Path(source).open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # not all of it: it may have any size
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidRequest(f"{source}: the policy cannot be read ({why}).") from None
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"{source}: a policy may have at most {MAX_BYTES:,} bytes.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{source}: the policy is not UTF-8 text.") from None
    return parse_policy(text, source)


def parse_policy(text: str, source: str) -> RulePolicy:
    """Return the policy in a text. `source` names it in errors."""
    import tomllib  # most sessions have no rules from a file

    try:
        document = tomllib.loads(text)
    except ValueError as error:  # also a number with too many digits
        raise InvalidRequest(f"{source}: not TOML: {error}.") from None
    except RecursionError:
        raise InvalidRequest(f"{source}: nested too deeply for a policy.") from None
    unknown = sorted(set(document) - {"rules"})
    if unknown:
        raise InvalidRequest(f"{source}: there is no {unknown[0]!r} here; rules are written as [[rules]].")
    listed = document.get("rules", [])
    if not isinstance(listed, list):
        raise InvalidRequest(f"{source}: rules are written as [[rules]], one table each.")
    tables = [_table(source, number, given) for number, given in enumerate(cast("list[Any]", listed), 1)]
    _check_ids(source, tables)
    try:
        policy = RulePolicy(tables)
    except BadRule as error:
        _fail(source, error.rule, error.field, str(error))
    if len(tables) * sum(len(table.match) for table in tables) > MAX_TRIES:
        raise InvalidRequest(f"{source}: too many examples for {len(tables):,} rules. Leave some out.")
    for table in tables:
        _check_examples(source, policy, table)
    return policy


def _table(source: str, number: int, given: Any) -> RuleTable:
    try:
        return msgspec.convert(given, type=RuleTable)
    except msgspec.ValidationError as error:
        name: Any = cast("dict[str, Any]", given).get("id") if isinstance(given, dict) else None
        words, place = split_error(str(error))
        _fail(source, name or f"number {number}", place, words)


def _check_ids(source: str, tables: list[RuleTable]) -> None:
    seen: set[str] = set()
    for table in tables:
        if not _ID.fullmatch(table.id):
            _fail(source, table.id, "id", "an id is 1 to 100 of a-z, 0-9, '_', '.' and '-'")
        if table.id in seen:
            _fail(source, table.id, "id", "another rule before it has the same id")
        seen.add(table.id)


def _check_examples(source: str, policy: RulePolicy, table: RuleTable) -> None:
    alone = RulePolicy([table])
    for number, example in enumerate(table.match):
        missed = alone.look(_question(table, example))[0].missed
        if missed is not None:
            _fail(source, table.id, f"match[{number}]", f"must match, but its {missed} does not")
        speaker = policy.look(_question(table, example))[-1].rule
        if speaker != table.id:
            why = f"never comes to this rule: {speaker} is before it and matches, too"
            _fail(source, table.id, f"match[{number}]", why)
    for number, example in enumerate(table.not_match):
        if alone.look(_question(table, example))[0].missed is None:
            _fail(source, table.id, f"not_match[{number}]", "must not match, but does")


def _question(rule: Rule, example: Example) -> PolicyQuestion:
    likely: list[ToolClass] = [*as_list(rule.tool_class or []), "dangerous"]
    return PolicyQuestion(
        session_id="",
        name=example.tool,
        tool_class=example.tool_class or likely[0],
        input=None,
        permission_mode="ask",
        subjects=Subjects(paths=as_list(example.path), hosts=as_list(example.host), argv=example.argv),
    )


def _fail(source: str, rule: str, field: str, why: str) -> NoReturn:
    where = f", field {field}" if field else ""
    raise InvalidRequest(f"{source}: rule {rule}{where}: {why}.")
