"""How a wrapped program ended, and what was counted on the way."""

from pathlib import Path

import msgspec

from codesdk.channel.protocol import AbortCode

POLICY_FAILURE = 40
_SIGNAL = 128
_CANCELLED = 130


class Abort(msgspec.Struct, frozen=True, kw_only=True):
    """Why a program was made to end."""

    code: AbortCode
    reason: str


class Tally(msgspec.Struct, kw_only=True):
    """What an arbiter counts."""

    requests: int = 0
    allowed: int = 0
    denied: int = 0
    timeouts: int = 0
    watched: int = 0
    completed: int = 0
    ignored: int = 0
    """Unknown and repeated ids, and answers that came too late."""
    parse_errors: int = 0
    unasked: int = 0
    """Calls that ran before they were decided."""
    ignored_denials: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a wrapped program. A negative `returncode` is the signal that ended it."""

    returncode: int
    tally: Tally
    abort: Abort | None = None
    controlled: bool = True
    """Whether it waited for every decision."""
    diagnostics: Path | None = None

    @property
    def exit_code(self) -> int:
        """What whoever wrapped it ends with: its own code, unless it was made to end."""
        if self.abort is not None:
            return _CANCELLED if self.abort.code == "user_cancel" else POLICY_FAILURE
        return self.returncode if self.returncode >= 0 else _SIGNAL - self.returncode
