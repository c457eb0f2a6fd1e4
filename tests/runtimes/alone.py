"""Real programs are only ever started in a network that has only loopback: see `codesdk.testing.network`."""

from codesdk.testing.network import alone, left_behind, tried_outside

__all__ = ["alone", "left_behind", "tried_outside"]
