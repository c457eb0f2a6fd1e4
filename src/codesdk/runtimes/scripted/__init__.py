"""The runtime `scripted`: plays a script without a model."""
