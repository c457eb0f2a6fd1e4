"""Tools over the Model Context Protocol: a session's tools served to runtimes, and the tools of other servers taken in.

`host` serves, over HTTP and in memory; `stdio` serves a process that was started for it; `attached` takes in. The
library `mcp` takes more than a second to import: `host` and `attached` load what needs it at first use, in a thread.
"""
