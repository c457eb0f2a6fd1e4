"""The event log and small blobs in one SQLite file: one writer thread, a few readers."""
