"""Text that can be encoded. Half of a surrogate pair cannot: a file's name, a tool or a model may bring one along."""

from typing import Any, cast


def is_text(value: object) -> bool:
    """Return whether a value is text that can be encoded."""
    try:
        return isinstance(value, str) and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False


def mend(value: Any) -> Any:
    """Return a JSON-like value whose text can be encoded: half of a surrogate pair becomes U+FFFD."""
    if isinstance(value, str):
        return (
            value if is_text(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, dict):
        return {mend(key): mend(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [mend(item) for item in cast("list[Any]", value)]
    return value
