"""Recorded exchanges: written, stored, and played back instead of a provider."""
