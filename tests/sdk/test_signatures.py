"""What the public names take: every argument has a name and a type, so that a type checker finds a wrong one."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import codesdk

ANY = (Any, "Any")


def functions_of(public: object) -> Iterator[Callable[..., Any]]:
    """Yield a function itself, or what makes a class and its public methods, inherited ones included."""
    if inspect.isfunction(public):
        yield public
    elif inspect.isclass(public):
        for name, member in inspect.getmembers(
            public, lambda it: inspect.isfunction(it) or inspect.ismethod(it)
        ):
            if name == "__init__" or not name.startswith("_"):
                yield member


@pytest.mark.parametrize("name", codesdk.__all__)
def test_no_public_name_takes_any_keyword_with_any_value(name: str):
    loose = [
        f"{function.__qualname__}(**{parameter.name})"
        for function in functions_of(getattr(codesdk, name))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.VAR_KEYWORD and parameter.annotation in ANY
    ]
    assert loose == []


def test_the_methods_of_a_class_are_looked_at_and_what_is_loose_is_seen():
    class Loose:
        def open(self, **options: Any) -> None: ...

        @classmethod
        async def make(cls, **options: "Any") -> None: ...

    found = {function.__name__ for function in functions_of(codesdk.CodeSDK)}
    assert {"open", "create_session", "delete_session", "jobs"} <= found
    assert [function.__name__ for function in functions_of(Loose)] == ["make", "open"]
