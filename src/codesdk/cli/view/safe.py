"""Text from models, tools and files → text that a terminal only shows, never obeys."""

import re

# Controls except tab and line feed, the C1 controls, signs that change the writing direction (a
# command could be made to look like another one), and lone surrogates, which cannot be encoded.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with everything that could steer a terminal replaced by a visible sign."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_picture, text.replace("\r\n", "\n"))


def printable_json(data: bytes) -> bytes:
    """Return JSON that means the same, with everything that could steer a terminal as `\\uXXXX`."""
    text = data.decode(errors="replace")
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text).encode()


def one_line(text: str, limit: int | None = None) -> str:
    """Return the text on one line, cut to `limit` characters if given."""
    if limit is not None and len(text) > 4 * limit:
        text = text[: 4 * limit]  # the rest would be cut off anyway, unless most of it is space
    flat = " ".join(printable(text).split())
    if limit is not None and len(flat) > limit:
        return flat[: max(limit - 1, 0)] + "…"
    return flat


def is_text(data: bytes) -> bool:
    """Return whether bytes are text that a person could read."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _picture(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\ufffd"
