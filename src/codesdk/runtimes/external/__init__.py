"""Any executable as a runtime: an adapter in a process of its own, spoken with in JSON-RPC 2.0 over its stdin and stdout.

`messages` are the protocol, `peer` one side of a connection. The engine's side is `runtime`, `process` and `task`; the
adapter's is `server`, which serves any `Runtime` object and is what `codesdk.adapter` offers to authors. So a
runtime of this package can be hosted in a process of its own as well (`hosting`).
"""
