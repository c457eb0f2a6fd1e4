"""Where events, rows, blobs and secrets' absence are kept.

`sqlite` and `memory` implement the `EventLog` port, `blobs` the `Blobs` port, `directory` lays both out in one
data directory under one writer, and `redaction` takes secrets out before anything gets here.
"""
