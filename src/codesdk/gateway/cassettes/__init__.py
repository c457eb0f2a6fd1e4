"""Recorded exchanges: written, stored, and played back in place of a provider."""
