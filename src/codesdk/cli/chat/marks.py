"""Whose line it is: ours begin with a mark in the first column, and nothing that others wrote can contain it.

Text of a model, a tool or another person stands two columns in and has neither the mark nor what looks like it, so no
output can pass for the prompt or for a question of CodeSDK, wherever a terminal breaks it.
"""

import re

from codesdk.cli.view.safe import printable

MARK = "▌"
INDENT = "  "
SAYS = "❯"
_LOOKS_LIKE_IT = re.compile("[▀-▟▏▕❘❙❚│┃┆┇┊┋╎╏║]")
_UNSEEN = re.compile(
    "[\u00ad\u180e\u200b-\u200d\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb]|[\U000e0000-\U000e007f]"
)


def theirs(text: str) -> str:
    """Return text of others as it may be shown: nothing in it steers a terminal, hides, or looks like the mark."""
    if text.isascii() and text.isprintable():
        return text
    return _LOOKS_LIKE_IT.sub("|", _UNSEEN.sub("", printable(text)))
