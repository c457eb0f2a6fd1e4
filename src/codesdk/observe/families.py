"""What metrics are made of: values of labels, which are few, and families in Prometheus' own classes."""

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from codesdk.contract.figures import Spread
from codesdk.redaction import Redactor

if TYPE_CHECKING:
    from prometheus_client import Metric

_OTHER = "other"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,79}")

Labels = tuple[str, ...]
Counts = defaultdict[Labels, float]
Spreads = defaultdict[Labels, Spread]


class Names:
    """The values of a label. Whatever exceeds the limit, or does not look like a name, becomes `other`.

    The limit is there because each value is a time series that Prometheus has to store.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()
        self._redactor = Redactor()

    def label(self, name: str | None) -> str:
        """Return the label value for a name."""
        if name is None:
            return "unknown"
        if name in self._known:
            return name
        # Names of models and tools come from outside: one may even hold a secret.
        plain = _PLAIN.fullmatch(name) is not None and self._redactor.text(name) is name
        if not plain or len(self._known) >= self._limit:
            return _OTHER
        self._known.add(name)
        return name


def gauge(name: str, words: str, value: float) -> "Metric":
    """Return a number that goes up and down."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"codesdk_{name}", words, value=value)


def gauges(name: str, words: str, labels: Labels, values: Mapping[Labels, float]) -> "Metric":
    """Return several such numbers under one name."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"codesdk_{name}", words, labels=labels)
    for of, value in sorted(values.items()):
        family.add_metric(of, value)
    return family


def counter(name: str, words: str, labels: Labels, counts: Mapping[Labels, float]) -> "Metric":
    """Return numbers that only grow."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"codesdk_{name}", words, labels=labels)
    for values, value in sorted(counts.items()):
        family.add_metric(values, value)
    return family


def histogram(name: str, words: str, labels: Labels, spreads: Mapping[Labels, Spread]) -> "Metric":
    """Return how values are spread."""
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(f"codesdk_{name}", words, labels=labels)
    for values in sorted(spreads):
        spread = spreads[values]
        family.add_metric(values, buckets=_buckets(spread), sum_value=spread.total)
    return family


def _buckets(spread: Spread) -> list[tuple[str, int]]:
    """Return Prometheus' buckets: how many values are at most each bound, up to all of them."""
    bounds = (*(repr(float(bound)) for bound in spread.bounds), "+Inf")
    return list(zip(bounds, accumulate(spread.counts), strict=True))
