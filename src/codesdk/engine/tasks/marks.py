"""Removes the marks that stand for denied calls from what an agent repeats of an answer. Pure.

The gateway puts a mark in the place of a call that it kept from the agent, and the agent takes it for the model's
words. The call itself is in the log, so nothing is lost when the mark is taken out of the words.
"""

import re

import msgspec

from codesdk.contract.messages import AssistantBlock, Code, Reasoning, Text
from codesdk.contract.ownership import MARK_START, MARKED

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
        """Return a text without marks; the same object if there are none."""
        while MARK_START in text:
            stripped = MARKED.sub(self._without, text)
            if stripped == text:
                break
            text = stripped  # what stood around a mark may be another one
        return text

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

    def _without(self, found: re.Match[str]) -> str:
        return "" if found[0] in self.issued else found[0]

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
