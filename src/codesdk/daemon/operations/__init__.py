"""What the daemon can be asked for: one module for each group of operations."""
