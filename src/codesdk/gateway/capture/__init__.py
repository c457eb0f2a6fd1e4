"""What passes through the gateway → what a session's log records: exact input, sources, purpose, usage."""
