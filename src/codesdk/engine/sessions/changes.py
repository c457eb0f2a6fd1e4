"""A requested change of settings to one that may be stored: checked, bounded, without secrets."""

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.settings import SettingsChange, merge_values
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.validation import MAX_DEPTH, check_size, is_deep

MAX_CHANGED_BYTES = 64 * 1024
"""How many bytes of `values` one change may set."""
MAX_VALUES_BYTES = 256 * 1024
"""How many bytes of `values` a session may have in all."""


def take_change(scope: SessionScope, change: SettingsChange) -> SettingsChange:
    """Return a change as readers of the log will see it. Raise `InvalidRequest` if it cannot be stored."""
    data = check_size(change, "The settings", scope.ports.limits.max_message_bytes)
    if is_deep(data):
        raise InvalidRequest(f"The settings of a session may be nested {MAX_DEPTH} levels deep, not more.")
    # Encoded and decoded, since readers get it from JSON: NaN or a wrong type is found here, not by them.
    taken = SettingsChange.of(scope.redactor.value(msgspec.json.decode(data)))
    given = taken.given()
    if not given:
        raise InvalidRequest("Nothing is to be changed. Name at least one setting.")
    if "values" in given:
        check_size(given["values"], "The values of one change", MAX_CHANGED_BYTES)
        merged = merge_values(scope.state.values, given["values"])
        check_size(merged, "The values of a session", MAX_VALUES_BYTES)
    return taken
