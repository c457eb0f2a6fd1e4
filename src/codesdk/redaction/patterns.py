"""The shapes of secrets: expressions for complete ones and for cut off ones, and a quick check.

No match begins or ends inside the marker that replaces it, so redacting twice changes nothing.
"""

import re
from collections.abc import Iterator

MARKER = "[redacted]"

# A token must not begin inside a word. A literal backslash-n, as in quoted JSON, ends a word too.
_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
_BEARER = r"(?:(?<=[Bb]earer\ )|(?<=BEARER\ ))"

HEADS = (
    "sk-",
    *(f"gh{kind}_" for kind in "pousr"),
    "github_pat_",
    "glpat-",
    "csdk_",
    "AKIA",
    "ASIA",
    "AIza",
    *(f"xox{kind}-" for kind in "abeoprs"),
    "eyJ",
)
_PEM = "-----BEGIN "

TOKEN = r"""
    (?:
        sk-(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{16,}
      | gh[pousr]_[A-Za-z0-9]{20,}
      | github_pat_[A-Za-z0-9_]{20,}
      | glpat-[A-Za-z0-9_-]{20,}
      | csdk_[A-Za-z0-9_-]{20,}
      | A[KS]IA[0-9A-Z]{16,}
      | AIza[0-9A-Za-z_-]{30,}
      | xox[abeoprs]-[A-Za-z0-9-]{10,}
      | eyJ[A-Za-z0-9_-]{8,500}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
    )
"""
"""Complete keys and tokens, which are none inside a word; one that begins right behind a removed secret is."""

FINISHED = rf"""
    {_EDGE}{TOKEN}
  | {_BEARER}[A-Za-z0-9._~+/=-]{{16,}}
  | (?<=://)(?P<user>[^\s/:@"']{{0,200}}:)(?!\[redacted\]@)[^\s/"']{{1,1000}}(?=@)
  | -----BEGIN\ [A-Z0-9 ]{{0,30}}PRIVATE\ KEY-----
    (?:(?:(?!-----BEGIN\ )[\s\S]){{0,16000}}?-----END\ [A-Z0-9 ]{{0,30}}PRIVATE\ KEY-----|[A-Za-z0-9+/=\s\\]*)
"""
"""Complete secrets, by shape. The group `user` is kept: the user name in front of a password in a URL.

Texts are made by strangers, too, so nothing here may look far ahead from every place where a secret could
begin: `sk-sk-sk-…` begins one every three characters.
"""

# What may begin a secret that the end of a text cuts off, each searched for only where it can reach that end.
_TOKEN_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_BEARER_CHARS = _TOKEN_CHARS + ".~+/="
_token_head = re.compile(rf"{_EDGE}(?:sk-|gh[pousr]_|github_pat_|glpat-|csdk_|A[KS]IA|AIza|xox[abeoprs]-)")
_jwt_head = re.compile(rf"{_EDGE}eyJ")
_bearer_head = re.compile(_BEARER, re.VERBOSE)
_short_end = re.compile(
    r"""
    (?<=://)[^\s/"']{0,1200}\Z
  | -----BEGIN\ [A-Z0-9 ]{0,30}-{0,4}\Z
    """,
    re.VERBOSE,
)
_SHORT_END = 1_200
_PEM_HEAD = "PRIVATE KEY-----"
_pem_head = re.compile(rf"-----BEGIN [A-Z0-9 ]{{0,30}}{_PEM_HEAD}\Z")
_LONGEST_PEM_HEAD = 11 + 30 + len(_PEM_HEAD)


def _beginnings(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({word[:size] for word in words for size in range(1, len(word))}))


_BEGINNINGS = _beginnings((*HEADS, _PEM))
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))
LAST_TWO = frozenset(word[-2:] for word in _BEGINNINGS)
"""How a text ends that may end in the beginning of a secret: with one of these characters or pairs."""
_BEGUN = rf"""
    {_EDGE}(?:{"|".join(map(re.escape, _beginnings(HEADS)))})\Z
  | (?:{"|".join(map(re.escape, _beginnings((_PEM,))))})\Z
"""

_begun = re.compile(_BEGUN, re.VERBOSE)

_in_token = re.compile(r"[A-Za-z0-9._~+/=-]*")
_in_pem = re.compile(r"[A-Za-z0-9+/=\s\\-]*")


def may_contain(text: str) -> bool:
    """Return quickly whether a text could hold a complete or an unfinished secret; False is certain.

    Every event passes through here. Searching for one character costs a fifth of searching for a word, so
    rare characters are tried first.
    """
    return (
        "earer " in text
        or ("-" in text and ("sk-" in text or "xox" in text or "glpat-" in text or "---BEGIN " in text))
        or ("I" in text and ("KIA" in text or "SIA" in text or "AIza" in text))
        or ("J" in text and "eyJ" in text)
        or ("_" in text and ("_pat_" in text or "csdk_" in text or ("gh" in text and _has_github(text))))
        or ("/" in text and "://" in text)
        or ("R" in text and "EARER " in text)
    )


def _has_github(text: str) -> bool:
    return "ghp_" in text or "gho_" in text or "ghu_" in text or "ghs_" in text or "ghr_" in text


def find_unfinished(text: str, start: int, suspected: bool) -> int:
    """Return where the first secret cut off by the end of the text begins, or the text's length.

    `suspected` is what `may_contain` returned: if False, only the last few characters can begin a secret.
    """
    if suspected:
        return min(_begun_at(text, start), *_ends_open(text, start))
    return _begun_at(text, start)


def _begun_at(text: str, start: int) -> int:
    """Return where the first characters of a secret begin that stand at the end of a text."""
    size = len(text)
    if not text.endswith(_BEGINNINGS):
        return size
    return _first(_begun.search(text, max(start, size - _LONGEST_BEGINNING)), size)


def _ends_open(text: str, start: int) -> Iterator[int]:
    """Yield where secrets begin that go on to the end of a text, for each kind the first one or the text's length."""
    size = len(text)
    yield _first(_short_end.search(text, max(start, size - _SHORT_END)), size)
    tail = len(text.rstrip(_TOKEN_CHARS))
    yield _first(_token_head.search(text, max(start, tail)), size)
    for _ in range(2):  # a JSON web token has two dots
        if text[tail - 1 : tail] == ".":
            tail = len(text[: tail - 1].rstrip(_TOKEN_CHARS))
    yield _first(_jwt_head.search(text, max(start, tail)), size)
    tail = len(text.rstrip(_BEARER_CHARS))
    yield _first(_bearer_head.match(text, tail) if tail >= start else None, size)
    last = text.rfind(_PEM_HEAD, start)
    end = last + len(_PEM_HEAD)
    yield _first(
        _pem_head.search(text, max(start, end - _LONGEST_PEM_HEAD), end) if last >= 0 else None, size
    )


def _first(match: re.Match[str] | None, otherwise: int) -> int:
    return otherwise if match is None else match.start()


def rest_of(secret: str) -> re.Pattern[str]:
    """Return the pattern of characters that continue this secret."""
    return _in_pem if secret.startswith(_PEM) else _in_token
