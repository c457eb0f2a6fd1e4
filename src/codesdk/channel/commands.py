"""Decisions → the commands that tell a program of them."""

from secrets import token_hex
from typing import Any

import msgspec

from codesdk.channel.limits import ArbiterLimits
from codesdk.channel.outcome import Abort
from codesdk.channel.protocol import CAPABILITY, VERSION, PolicyAbort, PolicyDecision, PolicyPing, now


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge says."""

    allow: bool
    reason: str
    rule_id: str | None = None
    constraints: dict[str, Any] | None = None


class Commands:
    """Makes the commands of one run."""

    def __init__(self, run_id: str | None, limits: ArbiterLimits) -> None:
        self._run_id = run_id
        self._limits = limits

    def decision(self, call_id: str, decided: Decided) -> PolicyDecision:
        """Return a decision on a call."""
        return PolicyDecision(
            **self._envelope(call_id),
            decision="allow" if decided.allow else "deny",
            reason=decided.reason,
            rule_id=decided.rule_id,
            constraints=decided.constraints,
            expires_in_ms=self._limits.expires_in_ms if decided.allow else None,
        )

    def ping(self) -> PolicyPing:
        """Return the word that somebody decides here, and how long that may take."""
        return PolicyPing(
            **self._envelope(f"ping-{token_hex(4)}"),
            capabilities=[CAPABILITY],
            timeout_ms=self._limits.decision_s * 1000,
        )

    def abort(self, abort: Abort) -> PolicyAbort:
        """Return the order to end."""
        return PolicyAbort(**self._envelope(f"abort-{token_hex(4)}"), reason=abort.reason, code=abort.code)

    def _envelope(self, message_id: str) -> dict[str, Any]:
        return {"v": VERSION, "ts": now(), "id": message_id, "run_id": self._run_id, "nonce": token_hex(8)}
