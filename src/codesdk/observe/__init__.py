"""Events → metrics, log lines and spans: observers that any engine can be given, in a daemon or inside a program.

    metrics = Metrics()
    async with CodeSDK.open(".codesdk", observers=[metrics, LogObserver()]) as sdk:
        metrics.watch(sdk.engine)

What they need (prometheus_client, opentelemetry) is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.observe.logs import (
        JsonFormatter as JsonFormatter,
    )
    from codesdk.observe.logs import (
        LogObserver as LogObserver,
    )
    from codesdk.observe.logs import (
        TextFormatter as TextFormatter,
    )
    from codesdk.observe.logs import (
        configure_logging as configure_logging,
    )
    from codesdk.observe.logs import (
        log_fields as log_fields,
    )
    from codesdk.observe.metrics import (
        CONTENT_TYPE as CONTENT_TYPE,
    )
    from codesdk.observe.metrics import (
        Metrics as Metrics,
    )
    from codesdk.observe.traces import (
        Traces as Traces,
    )

__all__, __getattr__, __dir__ = open_door(
    __name__,
    {
        ".logs": (
            "JsonFormatter",
            "LogObserver",
            "TextFormatter",
            "configure_logging",
            "log_fields",
        ),
        ".metrics": (
            "CONTENT_TYPE",
            "Metrics",
        ),
        ".traces": ("Traces",),
    },
)
