"""The source of CodeSDK → every kind of `runtime.notice` that it writes, so that a new one need not be listed.

A kind is written where a `RuntimeNotice` is made, or given to a function that makes one of its parameter.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "codesdk"


class _Maker(NamedTuple):
    """A function that makes a notice of what it is given: its name, the parameter, and the place of that."""

    name: str
    parameter: str
    place: int


@functools.cache
def notice_kinds() -> frozenset[str]:
    """Return the kinds in all of the package, but for what only shows them or plays them."""
    texts = [
        path.read_text()
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in ("cli", "testing")
    ]
    makers = {_RUNTIME_NOTICE}
    makers |= {maker for text in texts if "RuntimeNotice(" in text for maker in _makers(ast.parse(text))}
    calls = re.compile(rf"\b({'|'.join(maker.name for maker in makers)})\(")
    modules = [ast.parse(text) for text in texts if calls.search(text)]
    kinds: set[str] = set()
    for module in modules:
        constants = {
            target.id: node.value
            for node in module.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for given in _given(module, makers):
            named = [
                constants[one.id]
                for one in ast.walk(given)
                if isinstance(one, ast.Name) and one.id in constants
            ]
            kinds |= {text for one in (given, *named) for text in _texts(one)}
    return frozenset(kinds)


def _makers(module: ast.Module) -> Iterator[_Maker]:
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parameters = [one.arg for one in function.args.args if one.arg not in ("self", "cls")]
        for given in _given(function, {_RUNTIME_NOTICE}):
            if isinstance(given, ast.Name) and given.id in parameters:
                yield _Maker(function.name, given.id, parameters.index(given.id))


_RUNTIME_NOTICE = _Maker("RuntimeNotice", "kind", 0)


def _given(tree: ast.AST, makers: set[_Maker]) -> Iterator[ast.expr]:
    """Yield what calls of these are given as the kind."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        for maker in makers:
            if name == maker.name:
                yield from call.args[maker.place : maker.place + 1]
                yield from (one.value for one in call.keywords if one.arg == maker.parameter)


def _texts(value: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be; of a table, its values."""
    if isinstance(value, ast.Dict):
        for one in value.values:
            yield from _texts(one)
    elif isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
