"""A session's `runtime_config` → the options of its runtime, typed; what the runtime does not know is refused.

Each runtime states the type of its options (`Runtime.options`): a `RuntimeOptions` with a description on each field,
from which its page in the documentation is made.
"""

from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from codesdk.contract.capabilities import McpTransport
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.validation import explain

T = TypeVar("T")
Config = Mapping[str, Any]

AnyOptions = dict[str, Any]
"""The options of a runtime that takes whatever it is given."""
_KINDS = {str: "text", dict: "an object", bool: "true or false", int: "a whole number", float: "a number"}


class RuntimeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a runtime. As it is: those of a runtime without any."""

    @property
    def mcp_transports(self) -> tuple[McpTransport, ...]:
        """The MCP transports of the agent, if these options say which agent it is. Empty: those of the runtime."""
        return ()


def read_options(kind: type[T], config: Config, runtime: str) -> T:
    """Return a session's options. Raise `InvalidRequest` for one that the runtime does not know, naming those it does."""
    try:
        return msgspec.convert(dict(config), kind)
    except msgspec.ValidationError as error:
        known = ", ".join(_names(kind))
        raise InvalidRequest(
            f"The runtime {runtime} cannot take this runtime_config: {explain(error, kind)}."
            f" It takes {known or 'none'}.",
            runtime=runtime,
        ) from None


def fitting(kind: type[Any], config: Config) -> dict[str, Any]:
    """Return those of a session's options that a runtime takes, each judged by itself."""
    return {name: value for name, value in config.items() if _fits(kind, name, value)}


def _fits(kind: type[Any], name: str, value: Any) -> bool:
    try:
        read_options(kind, {name: value}, "")
    except InvalidRequest:
        return False
    return True


def option_table(kind: type[RuntimeOptions]) -> str:
    """Return a table of a runtime's options for the documentation, as Markdown."""
    lines = ["| option | values | meaning |", "|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        meaning = "".join(note.description or "" for note in _notes(field.type))
        lines.append(f"| `{field.name}` | {_values(field.type)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _names(kind: Any) -> tuple[str, ...]:
    return getattr(kind, "__struct_fields__", ())


def _notes(kind: Any) -> list[msgspec.Meta]:
    return [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, msgspec.Meta)]


def _values(kind: Any) -> str:
    """Return in words which values an option may have."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _values(get_args(kind)[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if isinstance(kind, type) and origin is None:
        return _KINDS[dict] if issubclass(kind, msgspec.Struct) else _KINDS[kind]
    if origin is dict:
        return _KINDS[dict]
    if origin is tuple:
        return f"a list of {_values(get_args(kind)[0])}"
    assert origin is Union or get_args(kind), f"{kind} is not described"
    return " or ".join(_values(part) for part in get_args(kind) if part is not NoneType)
