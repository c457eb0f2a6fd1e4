"""Runtime adapters: the registry and one driver per runtime."""
