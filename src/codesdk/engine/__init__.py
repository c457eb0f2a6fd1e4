"""The engine: sessions and tasks over a log.

`Engine` is the door. Inside, pure functions decide (`lifecycle`, `ledger`) and
fold (`fold`, `transcript`); `Recorder` is the only writer; `session`, `turns`, `run` and
`calls` are the async shell that talks to runtimes and tools.
"""
