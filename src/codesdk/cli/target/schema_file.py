"""A file with an output schema → the schema, or an error that names the file and the place in it."""

import json
from pathlib import Path
from typing import Any, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.tools import OutputSchema


def read_schema(file: str) -> dict[str, Any]:
    """Return the schema in a file. Raise `InvalidRequest` if it is not one that a result can be checked with."""
    try:
        value: Any = json.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise InvalidRequest(f"The output schema {file} cannot be read: {error.strerror}.") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{file}:{error.lineno}:{error.colno} is not JSON: {error.msg}.") from None
    except (UnicodeError, RecursionError):
        raise InvalidRequest(f"{file} is not JSON in UTF-8, or is nested too deeply.") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{file} is not a JSON Schema: it must be an object.")
    schema = cast("dict[str, Any]", value)
    try:
        OutputSchema(schema)
    except ValueError as error:
        raise InvalidRequest(f"{file}: {error}.") from None
    return schema
