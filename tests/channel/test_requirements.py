"""The list of requirements and the marks of the tests, compared both ways."""

import ast
from pathlib import Path

from tests.channel.requirements import REQUIREMENTS

TESTS = Path(__file__).parents[1]


def marks() -> dict[str, list[str]]:
    """Return the tests that show each requirement, read from their code."""
    found: dict[str, list[str]] = {}
    for path in [*TESTS.glob("channel/test_*.py"), *TESTS.glob("cli/test_wrap*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "shows":
                    assert node.name.startswith("test_"), f"{node.name} is no test"
                    for argument in mark.args:
                        found.setdefault(ast.literal_eval(argument), []).append(f"{path.name}::{node.name}")
    return found


def test_every_requirement_is_shown_by_a_test():
    assert sorted(set(REQUIREMENTS) - set(marks())) == []


def test_every_mark_names_a_requirement():
    assert sorted(set(marks()) - set(REQUIREMENTS)) == []
