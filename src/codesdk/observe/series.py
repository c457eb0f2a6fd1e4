"""Sums and spreads by label, with a bound on the number of labels: each one is a time series to store."""

import re
from collections.abc import Iterable

from codesdk.contract.figures import Spread
from codesdk.redaction import Redactor

OTHER = "other"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,79}")

Labels = tuple[str, ...]


class Names:
    """The values of a label. Whatever exceeds the limit, or does not look like a name, becomes `other`."""

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
            return OTHER
        self._known.add(name)
        return name


class Counts:
    """Sums by labels."""

    def __init__(self) -> None:
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Add to the sum under these labels."""
        self._values[labels] = self._values.get(labels, 0) + amount

    def items(self) -> Iterable[tuple[Labels, float]]:
        """Return all sums, as they are now."""
        return sorted(self._values.items())


class Spreads:
    """Spreads of seconds by labels."""

    def __init__(self) -> None:
        self._values: dict[Labels, Spread] = {}

    def add(self, labels: Labels, seconds: float) -> None:
        """Add a value under these labels."""
        spread = self._values.get(labels)
        if spread is None:
            spread = self._values[labels] = Spread()
        spread.add(seconds)

    def items(self) -> Iterable[tuple[Labels, Spread]]:
        """Return all spreads, as they are now."""
        return sorted(self._values.items(), key=_labels)


def _labels(item: tuple[Labels, object]) -> Labels:
    return item[0]
