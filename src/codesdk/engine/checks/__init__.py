"""Stored logs checked: the invariants verified, whole sessions replayed, policies tried on past calls."""
