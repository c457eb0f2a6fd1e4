"""The model gateway: one loopback endpoint that runtimes talk to instead of their provider.

It passes requests on, records them, plays them back, or answers from a script, in four wire formats.
"""
