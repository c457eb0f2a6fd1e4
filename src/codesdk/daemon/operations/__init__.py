"""The operations of the daemon: one module per group."""
