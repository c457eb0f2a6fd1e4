"""CodeSDK: run coding agents behind one recorded, policed and testable interface."""

__version__ = "0.1.0"
