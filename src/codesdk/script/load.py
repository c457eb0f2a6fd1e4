"""A script file, its text or plain data → `Script`. Every error names file, line and field.

The types in `model` are the grammar: this module walks them and the node tree side by side. `dump` is
the inverse: plain data that loads to an equal script.
"""

import difflib
import json
import re
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
from msgspec import inspect

from codesdk.contract.arguments import path_text
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.validation import read_as
from codesdk.script import model
from codesdk.script.nodes import Node, fault, read_json, read_object, read_yaml

MAX_BYTES = 10_000_000
MAX_BURST = 100_000_000
_GRAMMAR = inspect.type_info(model.Script)
# Nothing of a turn can follow the steps in `_LAST`. Those in `_ALONE` replace the whole answer, so nothing
# can precede them either.
_LAST = (model.CrashStep, model.FailStep, *model.GatewayOnlyStep.__args__)
_ALONE = (model.HttpStep, model.ContextTooLargeStep, model.EmptyStep)


def load_script(path: str | Path, source: str | None = None) -> model.Script:
    """Return the script in a file: JSON if its name ends in `.json`, otherwise YAML.

    Raise `InvalidRequest`, naming the place, if it is not valid. `source` names the file in messages where
    its full path should not be shown.
    """
    path = Path(path_text(path, "path"))
    source = source or str(path)
    try:
        if not path.is_file():
            raise InvalidRequest(f"{source}: there is no script file here")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{source}: the script cannot be read ({type(error).__name__})") from None
    if len(data) > MAX_BYTES:  # one byte more than allowed was read, so a huge file costs no memory
        raise InvalidRequest(f"{source}: a script may have at most {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise fault(source, line, "the script is not UTF-8 text") from None
    return parse_script(text, source)


def parse_script(text: str, source: str) -> model.Script:
    """Return the script in a text: JSON if `source`, its name in errors, ends in `.json`, else YAML."""
    text, source = read_as(str, text, "text"), read_as(str, source, "source")
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"{source}: a script may have at most {MAX_BYTES} bytes")
    read = read_json if source.lower().endswith(".json") else read_yaml
    return _build(read(text, source), source)


def parse_object(value: Any, source: str) -> model.Script:
    """Return the script in plain data, such as part of a configuration. `source` names it in errors."""
    return _build(read_object(value, source), source)


def dump(script: model.Script) -> dict[str, Any]:
    """Return plain data that loads to an equal script."""
    return cast("dict[str, Any]", _plain(script))


def _build(node: Node, source: str) -> model.Script:
    script = cast("model.Script", _Reader(source).value(_GRAMMAR, node, ""))
    turns = cast("list[Node]", cast("dict[str, Node]", node.value)["turns"].value)
    for number, (turn, place) in enumerate(zip(script.turns, turns, strict=True)):
        _check_turn(turn, place, f"turns[{number}]", source)
    return script


def _check_turn(turn: model.Turn, place: Node, path: str, source: str) -> None:
    """Refuse what the types allow but cannot be played."""
    if not turn.steps:
        return
    nodes = cast("list[Node]", cast("dict[str, Node]", place.value)["steps"].value)
    ids: set[str] = set()
    for index, (step, node) in enumerate(zip(turn.steps, nodes, strict=True)):
        where = f"{path}.steps[{index}].{model.key_of(step)}"
        if isinstance(step, model.CallStep) and step.id is not None:
            if step.id in ids:
                raise fault(source, node.line, f"{where}.id: {_show(step.id)} is already taken in this turn")
            ids.add(step.id)
        if isinstance(step, model.BurstStep) and step.count * step.size > MAX_BURST:
            raise fault(source, node.line, f"{where}: count times size is more than {MAX_BURST} characters")
        if (
            index + 1 < len(turn.steps)
            and isinstance(step, _LAST)
            and not isinstance(step, model.MalformedFrameStep)
        ):
            raise fault(source, nodes[index + 1].line, f"{where} ends the turn; nothing can follow it")
        if isinstance(step, _ALONE) and not all(isinstance(s, model.DelayStep) for s in turn.steps[:index]):
            raise fault(source, node.line, f"{where}: only a delay_s can come before it")


class _Reader:
    """Converts nodes to values of given types, or raises `InvalidRequest` naming the place."""

    def __init__(self, source: str) -> None:
        self.source = source

    def value(self, kind: inspect.Type, node: Node, path: str) -> Any:
        if isinstance(kind, inspect.StructType):
            return self.struct(kind, node, path)
        if isinstance(kind, inspect.UnionType):
            return self.union(kind, node, path)
        if isinstance(kind, inspect.VarTupleType):
            return self.items(kind, node, path)
        if isinstance(kind, inspect.DictType):
            entries = self.mapping(node, path)
            return {key: self.value(kind.value_type, entries[key], join(path, key)) for key in entries}
        if isinstance(kind, inspect.AnyType):
            return node.plain()
        return self.scalar(kind, node, path)

    def struct(self, kind: inspect.StructType, node: Node, path: str) -> Any:
        entries = self.mapping(node, path)
        fields = {field.encode_name: field for field in kind.fields}
        self.check_keys(node, path, "field", list(fields))
        for name, field in fields.items():
            if field.required and name not in entries:
                self.refuse(node.line, path, f"the field {name} is missing")
        values = {
            field.name: self.value(field.type, entries[name], join(path, name))
            for name, field in fields.items()
            if name in entries
        }
        return kind.cls(**values)

    def union(self, kind: inspect.UnionType, node: Node, path: str) -> Any:
        if isinstance(kind.types[0], inspect.StructType) and kind.types[0].tag is not None:
            return self.step(cast("tuple[inspect.StructType, ...]", kind.types), node, path)
        if node.value is None:
            return None
        given = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
        return self.value(given[0], node, path)

    def step(self, kinds: tuple[inspect.StructType, ...], node: Node, path: str) -> Any:
        entries = self.mapping(node, path)
        by_key = {str(kind.tag): kind for kind in kinds}
        self.check_keys(node, path, "step", list(by_key))
        if len(entries) != 1:
            found = " and ".join(entries) or "none"
            problem = f"a step has exactly one kind, this has {found}; put each behind its own dash"
            self.refuse(node.line, path, problem)
        ((key, child),) = entries.items()
        kind, inside = by_key[key], join(path, key)
        if not kind.fields:
            if child.value is not True:
                self.refuse(child.line, inside, f"expected true, got {describe(child)}")
            return kind.cls()
        if len(kind.fields) == 1:
            return kind.cls(self.value(kind.fields[0].type, child, inside))
        return self.struct(kind, child, inside)

    def items(self, kind: inspect.VarTupleType, node: Node, path: str) -> tuple[Any, ...]:
        if isinstance(kind.item_type, inspect.StrType) and isinstance(node.value, str):
            return (self.value(kind.item_type, node, path),)
        if (nodes := node.items()) is None:
            text = isinstance(kind.item_type, inspect.StrType)
            self.refuse(node.line, path, f"expected {'text or ' if text else ''}a list, got {describe(node)}")
        if len(nodes) < (kind.min_length or 0):
            self.refuse(node.line, path, "expected at least one entry, got an empty list")
        return tuple(self.value(kind.item_type, child, f"{path}[{i}]") for i, child in enumerate(nodes))

    def check_keys(self, node: Node, path: str, what: str, known: list[str]) -> None:
        for key in node.entries() or ():
            if key not in known:
                line = (node.key_lines or {}).get(key) or None  # data that is no text has no lines
                self.refuse(line, join(path, key), f"unknown {what}{suggest(key, known)}")

    def mapping(self, node: Node, path: str) -> dict[str, Node]:
        if (entries := node.entries()) is None:
            self.refuse(node.line, path, f"expected a mapping, got {describe(node)}")
        return entries

    def scalar(self, kind: inspect.Type, node: Node, path: str) -> Any:
        if isinstance(kind, inspect.LiteralType):
            if not isinstance(node.value, str) or node.value not in kind.values:
                names = [str(value) for value in kind.values]
                hint = suggest(node.value, names) if isinstance(node.value, str) else one_of(names)
                self.refuse(node.line, path, f"{describe(node)} is not possible here{hint}")
            return node.value
        wanted, types = _SCALARS[type(kind)]
        if not isinstance(node.value, types) or (isinstance(node.value, bool) and bool not in types):
            self.refuse(node.line, path, f"expected {wanted}, got {describe(node)}")
        problem = _out_of_bounds(kind, node.value)
        if problem is not None:
            self.refuse(node.line, path, f"{problem}, got {describe(node)}")
        return float(node.value) if isinstance(kind, inspect.FloatType) else node.value

    def refuse(self, line: int | None, path: str, message: str) -> NoReturn:
        raise fault(self.source, line, f"{path}: {message}" if path else message)


_SCALARS: dict[type, tuple[str, tuple[type, ...]]] = {
    inspect.StrType: ("text", (str,)),
    inspect.IntType: ("a whole number", (int,)),
    inspect.FloatType: ("a number", (int, float)),
    inspect.BoolType: ("true or false", (bool,)),
}


def _out_of_bounds(kind: inspect.Type, value: Any) -> str | None:
    """Return, in words, the bound of its type that a value breaks, or None."""
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        if kind.ge is not None and value < kind.ge:
            return f"must be at least {kind.ge:g}"
        if kind.le is not None and value > kind.le:
            return f"must be at most {kind.le:.0f}"
    elif isinstance(kind, inspect.StrType):
        if len(value) < (kind.min_length or 0):
            return "must not be empty"
        if kind.pattern is not None and not re.search(kind.pattern, value):
            return f"must be {model.IN_WORDS[kind.pattern]}"
    return None


def join(path: str, key: str) -> str:
    """Return the path of a field."""
    return f"{path}.{key}" if path else key


def describe(node: Node) -> str:
    """Return a node's value in a few words."""
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    return "nothing" if node.value is None else _show(node.value)


def suggest(word: str, known: list[str]) -> str:
    """Return a suggestion for a misspelled word, as the end of a message."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else one_of(known)


def one_of(known: list[str]) -> str:
    """Return all known words, as the end of a message."""
    return f"; known are {', '.join(sorted(known))}"


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


def _plain(value: Any) -> Any:
    if isinstance(value, model.Step):
        fields = msgspec.structs.fields(value)
        if not fields:
            return {model.key_of(value): True}
        if len(fields) == 1:
            return {model.key_of(value): _plain(getattr(value, fields[0].name))}
        return {model.key_of(value): _plain_fields(value)}
    if isinstance(value, msgspec.Struct):
        return _plain_fields(value)
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return items[0] if len(items) == 1 and isinstance(items[0], str) else [_plain(item) for item in items]
    return value


def _plain_fields(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for field in msgspec.structs.fields(value):
        content = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if content != default:
            plain[field.encode_name] = _plain(content)
    return plain
