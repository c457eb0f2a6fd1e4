"""A session's tools, served over the Model Context Protocol.

`host` serves over HTTP, `memory` within this process, `stdio` a process that was started for it; `mcp_client` is the other
direction. The library `mcp` takes more than a second to import, so `host` loads what needs it at first use,
in a thread.
"""
