"""A wire format → its acts. Each format is loaded when first needed."""

from functools import cache
from importlib import import_module

from codesdk.contract.models import Wire
from codesdk.gateway.ownership.acts import Acts


@cache
def acts_for(wire: Wire) -> Acts:
    """Return the acts of a format."""
    acts: Acts = import_module(f"codesdk.gateway.ownership.{wire}").ACTS
    return acts
