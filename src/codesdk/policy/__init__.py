"""Who may do what: permission modes, as pure functions of the call."""

from codesdk.policy.modes import ModePolicy

__all__ = ["ModePolicy"]
