"""The entry point of `codesdkd`. The daemon itself comes later; until then this says so."""

import sys

_NOT_YET = (
    "codesdkd, the CodeSDK daemon, is part of a later release and not in this one. "
    "Use the codesdk command or the Python library: both work without it."
)


def main() -> None:
    """Answer `--version` and `--help`; anything else is refused."""
    args = sys.argv[1:]
    if args == ["--version"]:
        from codesdk import __version__

        print(f"codesdkd {__version__}")
        return
    if args in (["--help"], ["-h"]):
        print(f"Usage: codesdkd [--version]\n\n{_NOT_YET}")
        return
    print(f"error (INVALID_REQUEST): {_NOT_YET}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
