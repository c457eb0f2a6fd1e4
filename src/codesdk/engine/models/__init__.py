"""Model requests of a session: recorded, limited, paid for."""
