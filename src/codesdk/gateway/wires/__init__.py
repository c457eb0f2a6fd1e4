"""The four wire formats of model providers, each read into and written from shared types (`exchange`)."""
