"""Permission modes, rules from a file, and one decision out of all opinions on a call. Pure functions."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.policy.decision import (
        all_opinions as all_opinions,
        decide as decide,
        granted_rule as granted_rule,
        may_answer as may_answer,
        open_questions as open_questions,
        standing as standing,
    )
    from codesdk.policy.load import load_policy as load_policy, parse_policy as parse_policy
    from codesdk.policy.modes import MODE as MODE, ModePolicy as ModePolicy
    from codesdk.policy.presets import (
        PRESET_PREFIX as PRESET_PREFIX,
        PRESETS as PRESETS,
        choose_policy as choose_policy,
        preset_of as preset_of,
        preset_policy as preset_policy,
    )
    from codesdk.policy.rules import Looked as Looked, RulePolicy as RulePolicy

__getattr__, __dir__ = open_door(__name__, __file__)
