"""A command in a sandbox, and all that came of it."""

from collections.abc import Mapping

from codesdk.sandbox.backend import Command, CommandEnd, Sandbox, Stream


class Ran:
    """How a command ended, and what it said."""

    def __init__(self, end: CommandEnd, said: Mapping[Stream, bytes]) -> None:
        self.end = end
        self.words = tuple(said.get("stdout", b"").decode().split("\n")[:-1])
        self.errors = said.get("stderr", b"").decode()


async def run(sandbox: Sandbox, command: Command) -> Ran:
    said: dict[Stream, bytes] = {}

    def take(stream: Stream, data: bytes) -> None:
        said[stream] = said.get(stream, b"") + data

    return Ran(await sandbox.run(command, take), said)
