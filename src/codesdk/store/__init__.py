"""Where events, rows, blobs and secrets' absence are kept.

`sqlite` (on `database`) and `memory` implement the `EventLog` port, `blobs` and `split` the `Blobs` port, `directory` lays both out in one
data directory under one writer, and `redaction` takes secrets out before anything gets here.
"""
