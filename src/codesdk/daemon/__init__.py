"""codesdkd: the engine over HTTP. `operations` is the table of what it does, `app` the way in, `server` the process."""
