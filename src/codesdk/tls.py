"""TLS of requests that go out: one context for the whole process, and one for addresses that need none.

To read the certificates takes longer than many a request, so whoever makes an HTTP client takes its context from here.
"""

import ssl
from functools import cache
from threading import Lock

_making = Lock()


def shared() -> ssl.SSLContext:
    """Return the context that trusts what this machine trusts. Made once; the first time takes some 20 ms."""
    with _making:  # two threads at the same time would make two
        return _made()


def trusting_nobody() -> ssl.SSLContext:
    """Return a context for requests in plain HTTP. Should one lead to TLS all the same, it fails, as it should."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _made() -> ssl.SSLContext:
    import httpx2  # only here, where it is used

    return httpx2.create_ssl_context()
