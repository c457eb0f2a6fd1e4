"""YAML or JSON text → a tree of nodes that know their line, so that errors can point at the place.

Only PyYAML's parser is used, not its constructors, so no tag can create an object. Scalars follow YAML 1.2:
`no` is a word, not false. Size, depth and aliases are bounded.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import yaml

from codesdk.contract.errors import InvalidRequest

MAX_DEPTH = 64
MAX_NODES = 1_000_000
_MAX_INT = 2**53 - 1  # beyond it, JSON readers that use doubles lose digits

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {"": None, "~": None} | {
    form: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for form in (word, word.title(), word.upper())
}
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
# libyaml, if PyYAML was built with it: the same events, many times faster.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_parse = cast("Callable[..., Iterator[Any]]", cast("Any", yaml).parse)


class Node(msgspec.Struct):
    """A value and the line it begins on. `value` is a scalar, a list of nodes, or a dict of them by key."""

    value: Any
    line: int | None
    key_lines: dict[str, int] | None = None
    size: int = 1
    depth: int = 1

    def plain(self) -> Any:
        """Return the value with everything below it, as plain Python data."""
        if (entries := self.entries()) is not None:
            return {key: child.plain() for key, child in entries.items()}
        if (items := self.items()) is not None:
            return [child.plain() for child in items]
        return self.value

    def entries(self) -> "dict[str, Node] | None":
        """Return the nodes of a mapping by key, or None if this is not a mapping."""
        value: object = self.value
        return cast("dict[str, Node]", value) if isinstance(value, dict) else None

    def items(self) -> "list[Node] | None":
        """Return the nodes of a list, or None if this is not a list."""
        value: object = self.value
        return cast("list[Node]", value) if isinstance(value, list) else None


class _Tree:
    """Builds the tree from the outside in, and enforces the bounds."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.open: list[tuple[Node, str | None]] = []
        self.keys: list[tuple[str, int] | None] = []
        self.total = 0

    def wants_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1][0].value, dict) and self.keys[-1] is None

    def key(self, key: str, line: int) -> None:
        seen = self.open[-1][0].key_lines
        if seen is not None and key in seen:
            raise fault(self.source, line, f"{_quote(key)} is given twice; the first is on line {seen[key]}")
        self.keys[-1] = (self.check(key, line), line)

    def check(self, value: Any, line: int | None) -> Any:
        """Refuse values that JSON and the event log cannot carry."""
        if isinstance(value, str):
            if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
                raise fault(self.source, line, "half of a surrogate pair is not a character")
        elif isinstance(value, float) and not math.isfinite(value):
            raise fault(self.source, line, "a number must be finite")
        elif isinstance(value, int) and abs(value) > _MAX_INT:
            raise fault(self.source, line, f"a whole number must be within ±{_MAX_INT}; write it as text")
        return value

    def add(self, node: Node) -> None:
        self.total += node.size
        if self.total > MAX_NODES:
            raise fault(self.source, node.line, f"more than {MAX_NODES} values, counting repeated aliases")
        if len(self.open) + node.depth > MAX_DEPTH:
            raise fault(self.source, node.line, f"nested deeper than {MAX_DEPTH} levels")
        if not self.open:
            self.root = node
            return
        parent = self.open[-1][0]
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if (items := parent.items()) is not None:
            items.append(node)
            return
        key, line = cast("tuple[str, int]", self.keys[-1])
        cast("dict[str, Node]", parent.value)[key] = node
        cast("dict[str, int]", parent.key_lines)[key] = line
        self.keys[-1] = None

    def begin(self, node: Node, anchor: str | None = None) -> None:
        if len(self.open) >= MAX_DEPTH:
            raise fault(self.source, node.line, f"nested deeper than {MAX_DEPTH} levels")
        self.open.append((node, anchor))
        self.keys.append(None)

    def end(self) -> tuple[Node, str | None]:
        node, anchor = self.open.pop()
        self.keys.pop()
        self.total -= node.size - 1  # its parts were counted as they came in; `add` counts the whole
        self.add(node)
        return node, anchor


def fault(source: str, line: int | None, message: str) -> InvalidRequest:
    """Return the error for a place in a script."""
    where = source if line is None else f"{source}:{line}"
    return InvalidRequest(f"{where}: {message}")


def read_yaml(text: str, source: str) -> Node:
    """Return the tree of a YAML document. Raise `InvalidRequest` if it is not valid or exceeds a bound."""
    tree = _Tree(source)
    anchors: dict[str, Node] = {}
    try:
        for event in _events(text, source):
            _take_event(tree, anchors, event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "this is not YAML"
        raise fault(source, mark.line + 1 if mark else None, problem) from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise fault(source, line, "half of a surrogate pair is not a character") from None
    except yaml.YAMLError as error:
        raise fault(source, None, f"this is not YAML: {str(error).splitlines()[0]}") from None
    if tree.root is None:
        raise fault(source, 1, "the script is empty")
    return tree.root


def read_json(text: str, source: str) -> Node:
    """Return the tree of a JSON document. Raise `InvalidRequest` if it is not valid or exceeds a bound."""
    try:
        json.loads(text)  # checks the syntax, so that reading token by token below can rely on it
    except json.JSONDecodeError as error:
        raise fault(source, error.lineno, f"this is not JSON: {error.msg}") from None
    except RecursionError:
        raise fault(source, None, f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise fault(source, None, f"this is not JSON: {error}") from None
    tree = _Tree(source)
    line, at = 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", at, token.start())
        at = token.start()
        _take_token(tree, token.group(), line)
    return cast("Node", tree.root)


def read_object(value: Any, source: str) -> Node:
    """Return the tree of plain data; its nodes have no lines."""
    tree = _Tree(source)
    _take_value(tree, value)
    return cast("Node", tree.root)


def _events(text: str, source: str) -> Iterator[Any]:
    documents = 0
    for event in _parse(text, Loader=_LOADER):
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise fault(source, event.start_mark.line + 1, "a script is one document; remove the second ---")
        yield event


def _take_event(tree: _Tree, anchors: dict[str, Node], event: Any) -> None:
    if isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
        node, anchor = tree.end()
        if anchor is not None:
            anchors[anchor] = node
        return
    if not isinstance(event, yaml.NodeEvent):
        return
    line = cast("int", event.start_mark.line) + 1
    if isinstance(event, yaml.AliasEvent):
        target = anchors.get(event.anchor)
        # An alias inside its own anchor would make the tree endless, so only complete nodes count.
        if target is None or tree.wants_key():
            raise fault(tree.source, line, f"*{event.anchor} refers to nothing that is complete before it")
        tree.add(target)
        return
    tag = cast("str | None", getattr(event, "tag", None))
    if tag not in (None, "!"):
        raise fault(tree.source, line, f"the tag {tag} is not supported; a script is plain data")
    if isinstance(event, yaml.ScalarEvent):
        _take_scalar(tree, anchors, event, line)
    elif tree.wants_key():
        raise fault(tree.source, line, "a field name must be a word, not a list or a mapping")
    elif isinstance(event, yaml.SequenceStartEvent):
        tree.begin(Node([], line), event.anchor)
    else:
        tree.begin(Node({}, line, {}), event.anchor)


def _take_scalar(tree: _Tree, anchors: dict[str, Node], event: Any, line: int) -> None:
    text = cast("str", event.value)
    if tree.wants_key():
        tree.key(text, line)
        return
    plain = event.implicit[0] and event.tag is None
    try:
        node = Node(tree.check(_resolve(text) if plain else text, line), line)
    except ValueError:
        raise fault(tree.source, line, "this number is too long") from None
    if event.anchor is not None:
        anchors[event.anchor] = node
    tree.add(node)


def _resolve(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return math.inf if _NOT_FINITE.fullmatch(text) else text


def _take_token(tree: _Tree, token: str, line: int) -> None:
    if token in "]}":
        tree.end()
    elif token == "[":
        tree.begin(Node([], line))
    elif token == "{":
        tree.begin(Node({}, line, {}))
    # The syntax was checked before, so these say nothing new.
    elif token in ",:":
        return
    elif tree.wants_key():
        tree.key(json.loads(token), line)
    else:
        tree.add(Node(tree.check(json.loads(token), line), line))


def _take_value(tree: _Tree, value: Any) -> None:
    if isinstance(value, Mapping):
        tree.begin(Node({}, None, {}))
        for key, child in cast("Mapping[Any, Any]", value).items():
            if not isinstance(key, str):
                raise fault(tree.source, None, f"a field name must be text, not {key!r}")
            tree.key(key, 0)
            _take_value(tree, child)
        tree.end()
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        tree.begin(Node([], None))
        for child in cast("Sequence[Any]", value):
            _take_value(tree, child)
        tree.end()
    elif value is None or isinstance(value, str | int | float):
        tree.add(Node(tree.check(value, None), None))
    else:
        raise fault(tree.source, None, f"{type(value).__name__} is not plain data")


def _quote(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else text[:60] + "…", ensure_ascii=False)
