"""For authors of adapters: `serve` makes a `Runtime` object of yours an executable that CodeSDK can use as a runtime.

    from codesdk.adapter import serve

    serve(MyRuntime(), wire="chat")

docs/adapter-protocol.md describes what goes over the pipes, for other languages, and shows how to name an adapter to CodeSDK.
`python -m codesdk.adapter NAME` serves a runtime of this package: so CodeSDK itself hosts them as processes.
"""

import sys
from importlib.metadata import version
from typing import Any

import msgspec

from codesdk.runtimes import create_runtime, serve, serve_streams

__all__ = ["serve", "serve_streams"]


def main(argv: list[str]) -> None:
    """Serve the runtime of a name, made with options given as JSON."""
    # Any names: a dictionary that is known by its keys would drop the others, and `create_runtime` refuses them.
    options = msgspec.json.decode(argv[1] if len(argv) > 1 else b"{}", type=dict[str, Any])
    serve(create_runtime(argv[0], **options), version=version("codesdk"))


if __name__ == "__main__":
    main(sys.argv[1:])
