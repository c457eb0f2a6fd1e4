"""The audit: a hash-chained record of who let what happen, written, read and verified."""
