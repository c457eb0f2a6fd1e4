"""How long, how many: what an arbiter waits for, and how much it bears."""

import msgspec

from codesdk.channel.framing import MAX_LINE_BYTES
from codesdk.channel.protocol import Action
from codesdk.contract.bounds import Bytes, Count, Milliseconds, Seconds


class ArbiterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one wrapped program."""

    decision_s: Seconds = 300.0
    """How long a decision may take, a person included. After that the call is denied."""
    execution_s: Seconds | None = None
    """How long an allowed call may run. None: as long as it likes."""
    silence_s: Seconds | None = None
    """How long the program may print nothing while no call of it waits. None: as long as it likes."""
    probe_s: Seconds = 5.0
    """How long a program in trouble has to show that it lives."""
    grace_s: Seconds = 2.0
    """How long it has to end by itself after `policy.abort`, and again after SIGTERM."""
    write_s: Seconds = 30.0
    """How long it may leave its stdin unread."""
    max_line_bytes: Bytes = MAX_LINE_BYTES
    max_parse_errors: Count = 100
    """How many lines may want to be events and be none. More: the two sides do not mean the same protocol."""
    max_waiting: Count = 10_000
    max_waiting_bytes: Bytes = 64 * 1024 * 1024
    """How many requests may wait for a decision, and how large they may be together. Others are denied at once."""
    max_open: Count = 10_000
    max_open_bytes: Bytes = 64 * 1024 * 1024
    """How many calls may be decided or watched and without a result, and how large their requests may be together. Of more,
    the oldest count as ended in a way that nobody knows."""
    require_control: bool = False
    """End a program that does not wait for decisions. Otherwise that is only reported."""
    abort_on: tuple[Action, ...] = ()
    """End a program that does one of these without waiting for a decision."""
    expires_in_ms: Milliseconds | None = None
    """How long a program may make use of an allow. None: the program decides."""


MAX_JUDGED = 64
"""How many requests are put to the judge at once; the others wait their turn."""
REMEMBERED_IDS = 100_000
"""How many ids of completed calls are remembered, so that a repeated one is recognized."""
