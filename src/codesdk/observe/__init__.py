"""Events → metrics, log lines and spans: observers for any engine, in a daemon or inside a program.

    metrics = Metrics()
    async with CodeSDK.open(".codesdk", observers=[metrics, LogObserver()]) as sdk:
        metrics.watch(sdk.engine)

Their libraries (prometheus_client, opentelemetry) are loaded when first used.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.observe.logs import (
        JsonFormatter as JsonFormatter,
        LogObserver as LogObserver,
        TextFormatter as TextFormatter,
        configure_logging as configure_logging,
        log_fields as log_fields,
    )
    from codesdk.observe.metrics import CONTENT_TYPE as CONTENT_TYPE, Metrics as Metrics
    from codesdk.observe.traces import Traces as Traces

__getattr__, __dir__ = open_door(__name__, __file__)
