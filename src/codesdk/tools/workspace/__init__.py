"""The built-in tools on workspace files, and what they share."""
