"""What is pasted → what goes into the line: the text itself, a short sign for a long one, or the mention of a file."""

import re
from pathlib import Path
from typing import NamedTuple

from codesdk.cli.chat.marks import theirs
from codesdk.contract.errors import InvalidRequest

MAX_TYPED_CHARS = 2_000
MAX_TYPED_LINES = 20
"""A paste that is longer stands in the line as a sign."""
_SIGN = re.compile(r"\[paste (\d+): [\d,]+ characters\]")
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Pasted(NamedTuple):
    """What goes into the line, and what there is to say about it."""

    text: str
    remark: str = ""


class Pastes:
    """The long texts that were pasted, by their signs."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, text: str) -> Pasted:
        """Return what goes into the line for a paste."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        clean, dropped = _STEERING.subn("", text)
        remark = ""
        if dropped:
            remark = (
                f"The paste had {dropped:,} control characters, which are left out. To give a file that is not text, attach it"
                " by its path: @path."
            )
        if path := _dropped_file(clean):
            return Pasted(path, remark)
        if len(clean) <= MAX_TYPED_CHARS and clean.count("\n") < MAX_TYPED_LINES:
            return Pasted(clean, remark)
        self._texts.append(clean)
        return Pasted(f"[paste {len(self._texts)}: {len(clean):,} characters]", remark)

    def whole(self, typed: str) -> str:
        """Return what was typed with the pastes in the place of their signs. Raise if one is not here any more."""

        def text_of(found: re.Match[str]) -> str:
            number = int(found.group(1))
            if not 0 < number <= len(self._texts):
                raise InvalidRequest(
                    f"{found.group()} was pasted in another chat and is not here. Paste it again."
                )
            return self._texts[number - 1]

        return _SIGN.sub(text_of, typed)


def _dropped_file(text: str) -> str:
    """Return the mention of a file, if a paste is its path: a terminal pastes that for a file that is dropped on it."""
    name = text.strip().strip("'\"")
    if "\n" in name or not name.startswith("/") or len(name) > 4096 or theirs(name) != name:
        return ""
    try:
        found = Path(name).is_file()
    except OSError:
        return ""
    return (f'@"{name}" ' if " " in name else f"@{name} ") if found else ""
