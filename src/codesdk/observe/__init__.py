"""Events → metrics, log lines and spans: observers that any engine can be given, in a daemon or inside a program.

    metrics = Metrics()
    async with CodeSDK.open(".codesdk", observers=[metrics, LogObserver()]) as sdk:
        metrics.watch(sdk.engine)

What they need (prometheus_client, opentelemetry) is loaded when it is first used.
"""

from codesdk.observe.logs import JsonFormatter, LogObserver, TextFormatter, configure_logging, log_fields
from codesdk.observe.metrics import Metrics
from codesdk.observe.traces import Traces

__all__ = [
    "JsonFormatter",
    "LogObserver",
    "Metrics",
    "TextFormatter",
    "Traces",
    "configure_logging",
    "log_fields",
]
