"""Who may do what: permission modes, rules from a file, and one decision out of all opinions. Pure functions of the call."""

from codesdk.policy.decision import decide
from codesdk.policy.modes import ModePolicy
from codesdk.policy.rules import RulePolicy

__all__ = ["ModePolicy", "RulePolicy", "decide"]
