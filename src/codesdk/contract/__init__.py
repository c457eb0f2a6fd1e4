"""The wire-visible contract: pure data and protocols, no I/O.

Everything an app reads from the library, the daemon, the store or a bundle is typed here. Every other package
imports this one; it imports none of them.
"""
