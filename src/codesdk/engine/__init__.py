"""The engine: runs sessions and tasks, and keeps each as a log of events. Import only from here.

Rooms: `log` (events on their way to the store and to readers) at the bottom, `checks` (verify and replay) at the top;
between them, and free to use each other, `calls` (tool calls), `models` (model requests), `tasks` (one run of a
task) and `sessions` (sessions in memory). Pure functions decide (`lifecycle`, `ledger`) and fold (`fold`, `transcript`); async code around them does
the I/O.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.engine.calls.editors import Editors as Editors
    from codesdk.engine.calls.undo import changed_calls as changed_calls
    from codesdk.engine.checks.policy_replay import (
        ReplayedDecision as ReplayedDecision,
        replay_policy as replay_policy,
    )
    from codesdk.engine.checks.replay import replay_session as replay_session
    from codesdk.engine.checks.verify import (
        is_interrupted as is_interrupted,
        verify_session as verify_session,
    )
    from codesdk.engine.engine import (
        GARBAGE_GRACE_S as GARBAGE_GRACE_S,
        Engine as Engine,
        EngineService as EngineService,
    )
    from codesdk.engine.log.archive import Archive as Archive
    from codesdk.engine.log.clock import SystemStamper as SystemStamper, iso as iso, millis as millis
    from codesdk.engine.log.feed import (
        PAGE_EVENTS as PAGE_EVENTS,
        Feed as Feed,
        unknown_session as unknown_session,
    )
    from codesdk.engine.log.subscription import Subscription as Subscription
    from codesdk.engine.logins import (
        log_in as log_in,
        readiness as readiness,
        require_logins as require_logins,
    )
    from codesdk.engine.permits import Permits as Permits
    from codesdk.engine.sessions.scope import Ports as Ports
    from codesdk.engine.sessions.sealing import unseal as unseal

__getattr__, __dir__ = open_door(__name__, __file__)
