"""A session's events: written, folded into state, stored, published, read back."""
