"""The descriptors of this process: how many there may be, and from which one on they are not for connections.

Whoever accepts connections asks here, so that those of clients and of commands leave enough for the store and the runtimes.
"""

import math
import resource

_MOST_KEPT_BACK = 4096


def descriptor_limit() -> float:
    """Return how many descriptors the process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if limit == resource.RLIM_INFINITY else limit


def descriptor_marks(limit: float) -> tuple[float, float]:
    """Return from which descriptor on it is crowded, and from which on they are kept for others than clients."""
    kept = min(limit // 4, _MOST_KEPT_BACK) if math.isfinite(limit) else 0
    return limit - 2 * kept, limit - kept
