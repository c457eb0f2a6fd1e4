"""Tool calls: recorded in a ledger, decided by policy and people, run, and undone."""
