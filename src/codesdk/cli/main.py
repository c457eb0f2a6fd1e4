"""The entry point of `codesdk`. Answers `--version` itself, so that it is instant; the rest is in `app`."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    args = sys.argv[1:]
    if args == ["--version"]:
        from codesdk import __version__

        print(f"codesdk {__version__}")
        return
    from codesdk.cli.app import run

    sys.exit(run(args))


if __name__ == "__main__":
    main()
