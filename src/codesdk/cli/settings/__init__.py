"""What an operator sets: one table of settings, given as flags, variables or in the operator's `codesdk.toml`."""
