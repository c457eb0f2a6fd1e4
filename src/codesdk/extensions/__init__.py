"""Extensions: code of others that is told of events and asks for actions. What it shares with CodeSDK is here.

Pure: `outcomes`, `reconciliation`, `versions`, `manifest`, `signals`. From a directory to handlers: `sources`,
`snapshot`, `loading`. Where they run: `worker`, which is a `thread` each or a `process` each. From an event to actions:
`host`, `dispatch`, `tools`, `actions`; to work that is done later: `jobs`, `running`.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.extensions.actions import EngineActions as EngineActions
    from codesdk.extensions.dispatch import ActionExecutor as ActionExecutor, Dispatcher as Dispatcher
    from codesdk.extensions.example import write_example as write_example
    from codesdk.extensions.host import PAGES_AHEAD as PAGES_AHEAD, ExtensionHost as ExtensionHost
    from codesdk.extensions.jobs import JobQueue as JobQueue
    from codesdk.extensions.loading import (
        AppAction as AppAction,
        ExtensionOptions as ExtensionOptions,
        ExtensionSet as ExtensionSet,
        TrustMode as TrustMode,
        load_set as load_set,
    )
    from codesdk.extensions.manifest import Manifest as Manifest, read_manifest as read_manifest
    from codesdk.extensions.outcomes import (
        CORE_API_VERSION as CORE_API_VERSION,
        ActionRequest as ActionRequest,
        ActionResult as ActionResult,
        AgentEventEmitResult as AgentEventEmitResult,
        AgentRuntimeCompatibility as AgentRuntimeCompatibility,
        AgentRuntimeEvent as AgentRuntimeEvent,
        AgentRuntimeProfile as AgentRuntimeProfile,
        EnqueueResult as EnqueueResult,
        HandlerError as HandlerError,
        HandlerResult as HandlerResult,
        Job as Job,
        ProfileBinding as ProfileBinding,
        to_emit_result as to_emit_result,
        to_handler_error as to_handler_error,
    )
    from codesdk.extensions.reconciliation import (
        ActionPlan as ActionPlan,
        classify_reconciled_action_status as classify_reconciled_action_status,
        select_action_execution_plan as select_action_execution_plan,
        select_enqueue_winner as select_enqueue_winner,
        select_first_successful_action as select_first_successful_action,
    )
    from codesdk.extensions.registry import (
        AgentEventRegistry as AgentEventRegistry,
        AgentRuntimeTools as AgentRuntimeTools,
    )
    from codesdk.extensions.signals import (
        Origin as Origin,
        Signal as Signal,
        normalize_method as normalize_method,
    )
    from codesdk.extensions.snapshot import Snapshot as Snapshot, take_snapshot as take_snapshot
    from codesdk.extensions.sources import Pins as Pins
    from codesdk.extensions.suggestions import outcomes_of as outcomes_of
    from codesdk.extensions.versions import VersionRange as VersionRange, parse_version as parse_version
    from codesdk.extensions.worker import Hosting as Hosting

__getattr__, __dir__ = open_door(__name__, __file__)
