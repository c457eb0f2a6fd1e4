"""The command line: `codesdk` and `codesdkd`. The top layer; nothing imports it."""
