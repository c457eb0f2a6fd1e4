"""What an agent tells again of a session that it keeps → how many of the last messages it has.

An agent may tell a prompt block by block, in pieces, or as one text. So words are compared without their spaces, and a
message, or several in a row, must begin and end where pieces do: "go on" is not in "go on with the tests".
"""

from collections.abc import Collection, Sequence

import msgspec

from codesdk.runtimes.acp.input import GUARD
from codesdk.runtimes.program.jsonrpc import as_dict
from codesdk.runtimes.program.unanswered import Sent

MAX_TOLD_CHARS = 32 * 1024 * 1024
_PIECE_CHARS = 32
"""What a piece counts beside its words, so that a flood of empty ones has an end, too."""
_ENDING_CHARS = 200


class _Piece(msgspec.Struct, frozen=True):
    by_user: bool
    text: str | None
    """None for an image, or anything else that is no text."""


class Told:
    """What an agent tells again of its session, in order. The rest of a flood is dropped."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._room = MAX_TOLD_CHARS

    def add(self, message: object) -> None:
        """Take a message in, if it is something that was said."""
        update = as_dict(as_dict(as_dict(message).get("params")).get("update"))
        kind, content = update.get("sessionUpdate"), as_dict(update.get("content"))
        if kind not in ("user_message_chunk", "agent_message_chunk") or not content:
            return
        text = str(content.get("text") or "") if content.get("type", "text") == "text" else None
        size = len(text or "") + _PIECE_CHARS
        if text != "" and size <= self._room:
            self._room -= size
            self._pieces.append(_Piece(kind == "user_message_chunk", text))

    def answers(self) -> str:
        """Return all that the agent said."""
        return "".join(piece.text or "" for piece in self._pieces if not piece.by_user)

    def count_had(self, answer: str, since: Sequence[Sent]) -> int:
        """Return how many messages the agent has: the model's last answer, and what was said since then.

        It has the answer, or has dropped it because it was cut off. Each piece counts once.
        """
        pieces = self._users_after(answer)
        words = [_lean("".join(sent.texts)) for sent in since]
        count = _count_words(words, [_lean(piece.text) for piece in pieces if piece.text is not None])
        others = sum(piece.text is None for piece in pieces)
        for place, sent in enumerate(since[:count]):
            if not words[place] and others < sent.others:
                return 1 + place
            others = max(0, others - sent.others)
        return 1 + count

    def _users_after(self, answer: str) -> list[_Piece]:
        """Return what users said after an answer. If the agent has dropped it, the first is what it answered."""
        ending = _lean(answer)[-_ENDING_CHARS:]
        spoken = "".join(_lean(piece.text) for piece in self._pieces if not piece.by_user)
        end = spoken.rfind(ending) + len(ending) if ending and ending in spoken else 0
        dropped = end == 0
        users: list[_Piece] = []
        heard = 0
        for piece in self._pieces:
            if piece.by_user:
                users.append(piece)
                continue
            if dropped or heard < end:
                users = []
            heard += len(_lean(piece.text))
        return users[1:] if dropped else users


def ending_of(answer: str) -> str:
    """Return the end of an answer, by which it is known that an agent has told it."""
    return answer[-_ENDING_CHARS:]


def _lean(text: str | None) -> str:
    return "".join((text or "").split())


def _count_words(words: Sequence[str], pieces: Sequence[str]) -> int:
    """Return how many messages are among the pieces, the first ones, in their order."""
    text = "".join(pieces)
    edges = {0: None}  # in order, and quick to look up
    place = 0
    for piece in pieces:
        if piece.startswith(GUARD):  # it was put before the words, and an agent may tell both as one
            edges[place + len(GUARD)] = None
        place += len(piece)
        edges[place] = None
    start = count = 0
    while count < len(words):
        found = _find_run(words, count, text, edges, start)
        if found is None:
            break
        start, count = found
    return count


def _find_run(
    words: Sequence[str], first: int, text: str, edges: Collection[int], start: int
) -> tuple[int, int] | None:
    """Return where the longest run of messages ends that begins and ends at an edge, and the message after it."""
    if not words[first]:
        return start, first + 1
    for edge in edges:
        best: tuple[int, int] | None = None
        end = edge
        for number in range(first, len(words) if edge >= start else first):
            if not text.startswith(words[number], end):
                break
            end += len(words[number])
            if end in edges:
                best = end, number + 1
        if best is not None:
            return best
    return None
