"""What passes the gateway → what a session's log says of it: exact input, sources, purpose, usage."""
