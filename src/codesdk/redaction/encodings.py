"""A known secret → how base64, hexadecimal digits and URLs spell it.

Base64 has three spellings of the same bytes, by how many bytes come before them. At both ends a character
may belong to the neighbours, too; those are not part of the spelling, so up to four bits of the first and of
the last byte may stay readable. URLs may escape any character; that takes an expression, like JSON's escapes.
"""

import base64
import re
from collections.abc import Iterable, Iterator

SHORTEST_ENCODED = 8
"""How many bytes a secret must have to be looked for in base64 and hexadecimal: fewer would match by chance."""

# Once more encoded, a % becomes %25.
_PERCENT = "%(?:25)*"
# A cut off escape, and the bytes of a character in front of it, which may lack their last one.
UNFINISHED_PERCENT = re.compile(r"(?:%(?:25)*[89A-Fa-f][0-9A-Fa-f]){0,3}(?:%(?:25)*[0-9A-Fa-f]?)?\Z")
"""What the end of a text may cut off of an escape in a URL."""
TANGLED_PERCENT = re.compile("%(?:25)*2?")
"""What of a secret reads like the beginning of an escape: in a text one cannot be told from the other by itself."""
# Capitals that base64 of ASCII is full of come first, so that a few characters stand for all forms. Small
# letters and digits come last: ids have them, too.
_TELLING = "ZWXMNJYQVKUHGDFBLPRSTOECAI+/7639"


def encoded_forms(secret: str) -> set[str]:
    """Return a secret in base64, standard and for URLs, in hexadecimal digits, and with + for spaces."""
    data = secret.encode()
    forms = {secret.replace(" ", "+")} - {secret}
    if len(data) >= SHORTEST_ENCODED:
        forms |= {*_base64_forms(data), data.hex(), data.hex().upper()}
    return forms


def _base64_forms(data: bytes) -> Iterator[str]:
    for before in range(3):
        code = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        first = (0, 2, 3)[before]
        last = len(code) if (before + len(data)) % 3 == 0 else len(code) - 1
        yield code[first:last]
        yield code[first:last].replace("+", "-").replace("/", "_")


def percent_tokens(word: str) -> Iterator[str]:
    """Yield an expression for each character of a word: itself, or escaped as in a URL."""
    for character in word:
        escaped = "".join(f"{_PERCENT}{digits(byte, 2)}" for byte in character.encode())
        literal = re.escape(character) + (r"|\+" if character == " " else "")
        yield f"(?:{escaped}|{literal})"


def digits(code: int, size: int) -> str:
    """Return an expression for a number in hexadecimal digits of either case.

    Sets for the letters alone: an expression that ignores case takes twice as long to compile.
    """
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:0{size}x}")


def any_percent_escape(words: Iterable[str]) -> re.Pattern[str]:
    """Return an expression for one escaped byte of any of these words: without one, there is nothing to find."""
    found = sorted({byte for word in words for byte in word.encode()})
    return re.compile(f"{_PERCENT}(?i:{'|'.join(f'{byte:02x}' for byte in found)})")


def by_telling_character(forms: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the forms by a character of theirs that ordinary text seldom has, to be searched for first."""
    found: dict[str, list[str]] = {}
    for form in sorted(forms):
        found.setdefault(min(form, key=_rank), []).append(form)
    return [(character, tuple(same)) for character, same in found.items()]


def _rank(character: str) -> int:
    at = _TELLING.find(character)
    return at if at >= 0 else len(_TELLING)
