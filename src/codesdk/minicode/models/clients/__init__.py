"""The official client of each kind of provider, in a module of its own: one is loaded when it is first asked, and no other.

Each has `make(settings, http, certificates)`, which returns the library's model and what its requests ask for beside
what all of them do.
"""
