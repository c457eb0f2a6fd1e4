"""The audit: a hash-chained record of who allowed what; written, read and verified."""
