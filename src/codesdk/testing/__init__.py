"""For the tests of applications and adapters: fakes, chaos, and the contracts as functions.

`fakes` has stand-ins that a test drives, `chaos` a runtime that misbehaves on purpose, `conformance` one
function per contract for authors of a runtime or an event log. CodeSDK itself runs without it.
"""
