"""The pieces of an answer → as many of them as are kept in memory; the rest is only counted. For the decoders.

A provider may go on for as long as its connection lasts, so what a decoder remembers of one answer has an end.
"""

from codesdk.gateway.wires.sse import MAX_EVENT_BYTES

_COST = 64
"""What a piece takes besides its characters: an answer of empty pieces must not be free."""


CALL_BYTES = 1024
"""What a call or an item takes, however little it says."""


class Kept:
    """How much room one answer has left, over its text, its reasoning and the input of its calls."""

    def __init__(self, most: int = MAX_EVENT_BYTES) -> None:
        self._left = most
        self.beyond = 0
        """How many characters there were no room for."""

    def room_for(self, size: int) -> bool:
        """Take room for a call or an item; return whether there was enough."""
        self._left = max(0, self._left - size - _COST)
        return self._left > 0

    def add(self, pieces: list[str], piece: str) -> None:
        """Add a piece to others, or count it. After the first that has no room, none has."""
        if not piece:
            return
        if self.room_for(len(piece)):
            pieces.append(piece)
        else:
            self.beyond += len(piece)
