"""Removes the marks that stand for denied calls from what an agent repeats of an answer. Pure.

The gateway puts a mark in the place of a call that it kept from the agent, and the agent takes it for the model's
words. The call itself is in the log, so nothing is lost when the mark is taken out of the words.
"""

import re

import msgspec

from codesdk.contract.messages import AssistantBlock, Code, Reasoning, Text
from codesdk.contract.ownership import MARK_START

_BRACKET = re.compile(r"([\[\]])")
_MOST_NESTED = 100
"""How many marks may have begun inside each other. Nobody means to; without a bound a text of beginnings would be dear."""


class Marks:
    """The marks that one session has issued."""

    def __init__(self) -> None:
        self.issued: set[str] = set()
        """Empty in most sessions: look here first, and do nothing else if it is."""

    def add(self, mark: str) -> None:
        """Take a mark out of all text from now on."""
        self.issued.add(mark)

    def strip(self, text: str) -> str:
        """Return a text without marks; the same object if there are none.

        What stood around a mark may be another one, so a mark is looked for whenever a bracket closes, in what is
        left since it opened. One pass, however deep they are in each other.
        """
        if MARK_START not in text:
            return text
        kept: list[str] = []
        opened: list[list[str]] = []  # what follows each bracket that may still begin a mark
        found = False
        for piece in _BRACKET.split(text):
            if piece == "[":
                opened.append(["["])
            elif piece != "]" or not opened:
                (opened[-1] if opened else kept).append(piece)
            elif "".join([*opened[-1], "]"]) in self.issued:
                opened.pop()
                found = True
            else:  # brackets that stay: nothing around them is a mark
                kept += (each for inner in opened for each in inner)
                kept.append("]")
                opened.clear()
        kept += (each for inner in opened for each in inner)
        return "".join(kept) if found else text

    def strip_content(self, content: list[AssistantBlock]) -> list[AssistantBlock]:
        """Return a message's content without marks, and without blocks that held nothing else."""
        blocks = [(block, self._strip_block(block)) for block in content]
        return [new for old, new in blocks if new is old or not _is_empty(new)]

    def find_cut(self, text: str) -> int:
        """Return where a mark begins that the text's end may have cut off, or the text's length.

        Inside of one another may have begun: what stands around it is a mark once that is whole and taken out.
        """
        cut = end = len(text)
        for _ in range(_MOST_NESTED):
            at = text.rfind(MARK_START[0], 0, end)
            if at < 0 or not any(mark.startswith(text[at:end]) for mark in self.issued):
                break
            cut = end = at
        return cut

    def _strip_block(self, block: AssistantBlock) -> AssistantBlock:
        if isinstance(block, Text | Reasoning):
            text = self.strip(block.text)
            return block if text is block.text else msgspec.structs.replace(block, text=text)
        if isinstance(block, Code):
            code = self.strip(block.code)
            return block if code is block.code else msgspec.structs.replace(block, code=code)
        return block


class Unmarked:
    """Takes marks out of one stream of deltas, cut anywhere. Holds back only what may be the beginning of one."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._held = ""

    def feed(self, delta: str) -> str:
        """Take a piece; return what can be released now."""
        text = self._marks.strip(self._held + delta)
        cut = self._marks.find_cut(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """End the stream; return what was held back."""
        held, self._held = self._held, ""
        return held


def _is_empty(block: AssistantBlock) -> bool:
    if isinstance(block, Reasoning) and block.details is not None:
        return False
    return isinstance(block, Text | Reasoning) and not block.text.strip()
