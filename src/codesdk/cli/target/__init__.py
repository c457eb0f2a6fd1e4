"""What a command works on: a data directory or a daemon, and the session that is meant."""
