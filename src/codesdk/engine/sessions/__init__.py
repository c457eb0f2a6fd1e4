"""Sessions: created, loaded, kept in memory, forked, recovered."""
