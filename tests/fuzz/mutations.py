"""Good inputs → hostile ones, the same for the same seed: JSON, lines of JSON, requests, plain text, archives.

A change knows the structure of what it changes, so that most of what it makes still gets past the first check of a
parser. What a change cannot read, an earlier one has broken already: then bytes are changed instead.
"""

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Literal

Shape = Literal["json", "lines", "request", "text", "archive"]
Change = Callable[[Random, bytes, Sequence[bytes]], bytes]

MAX_BYTES = 256 * 1024
LONG_BYTES = 512 * 1024
"""How long a repeated piece becomes: what takes n² steps for it takes minutes."""
_CHANGES_OF_ONE = (1, 1, 1, 2, 3)  # mostly one, so that the rest is still read
_BYTES = (
    b"\xff", b"\0", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc0\x80", b"\r", b"\n", b"\r\n\r\n", b"\n\n", b"\\", b'"',
    b"{", b"}", b"[", b"]", b":", b",", b"\xe2\x80\xa8", b"\x1b[31m", b"\x85",
)  # fmt: skip
_NUMBERS = (
    "0", "-1", "1e999", "-1e999", "1e-999", "NaN", "-Infinity", "9223372036854775808", "18446744073709551616",
    "-9223372036854775809", "1" * 400, "1" * 5000, "0.5", "-0", "1e3", "4294967296", "007",
)  # fmt: skip
_VALUES = (
    *_NUMBERS, "true", "false", "null", '""', "[]", "{}", '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\udcff"',
    '"\\u001b]0;x\\u0007"', '"../../x"', '"__class__"', "[null]", '[{"type":null}]', '{"type":"text"}',
    '{"":{}}', '"["', '"(a+)+$"', '"#"', '{"$ref":"#"}', '"http://[::1"', '"\\ud83d\\ude00"', f'"{"x" * 5000}"',
)  # fmt: skip
"""As they are written; \\udcff stands for the byte FF."""
_DEPTHS = (40, 90, 130, 500, 3000)
_WORDS = (
    "&a [*a, *a]", "*a", "&a", "<<: *a", "!!python/object:os.system", "!!binary", "---", "...", "? ", "- ", "|",
    ">", "%YAML 9.9", "{a: {a: {a: ", "[[rules]]", "[rules]", '"""', "'''", "1979-13-45", "0x", "inf", "nan",
    "= [[[[", "# ", "**/*", "[!", "[z-a]", "*" * 60, "a/" * 300, "\\", "..", "/dev/null", "@@ -0,0 +1 @@",
    "\\ No newline at end of file", "rename from x", '"a\\', "--- ", "+++ ", "diff --git a/x b/x",
)  # fmt: skip

_STARTS = (
    " - at ", "<!--", "-->", "<cwd>", "<cwd> ", "call-", "1,", "[codesdk:denied:", "Working directory: /a ", "eyJ",
    "-----BEGIN PRIVATE KEY-----", "sk-", "%25", "\\u00", "token count ", "/~", "a.", "a@", "\t", "\r\n",
)  # fmt: skip
"""What begins something that an expression somewhere looks for the end of."""


def mutate(random: Random, seeds: Sequence[bytes], shape: Shape) -> bytes:
    """Return one of the seeds, changed once or a few times."""
    data = random.choice(seeds)
    for _ in range(random.choice(_CHANGES_OF_ONE)):
        data = _CHANGES[shape](random, data, seeds)
    return data[:MAX_BYTES]


def repeat(random: Random, seeds: Sequence[bytes], shape: Shape) -> bytes:
    """Return one of the seeds with a piece of it, or of a word that means something, repeated until it is long.

    What needs more than a constant time for each byte has no end on these. Half of the time the piece is repeated
    inside of a text of JSON, so that the rest is still read.
    """
    data = random.choice(seeds)
    piece = _piece(random, data, seeds)
    if shape == "archive":
        return _in_member(random, data, piece)
    if shape != "text" and random.randrange(4):
        return _in_text(random, data, piece)
    at = random.randint(0, len(data))
    return data[:at] + _long(piece) + data[at:]


def _piece(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    match random.randrange(4):
        case 0:
            return random.choice(_WORDS + _STARTS).encode("utf-8", "surrogateescape")
        case 1:
            return random.choice(_BYTES)
        case 2:
            return random.choice(random.choice(seeds).split(b"\n")) + b"\n"
        case _:
            start = random.randint(0, len(data))
            return data[start : start + random.choice((1, 2, 5, 20))]


def _long(piece: bytes) -> bytes:
    return (piece or b" ") * (LONG_BYTES // len(piece or b" "))


def _in_text(random: Random, data: bytes, piece: bytes) -> bytes:
    """Put what is repeated behind one of the quotes of some JSON: into a name or a text, or between two."""
    quotes = [at for at, byte in enumerate(data) if byte == ord('"')]
    at = random.choice(quotes) + 1 if quotes else len(data)
    written = json.dumps(piece.decode("utf-8", "replace"))[1:-1].encode()
    return data[:at] + _long(written) + data[at:]


def _in_member(random: Random, data: bytes, piece: bytes) -> bytes:
    try:
        tar = gzip.decompress(data)
    except (OSError, EOFError, ValueError, zlib.error):
        return _long(piece)
    return gzip.compress(_each_member(tar, random, lambda content: _in_text(random, content, piece)), 1)


# --- bytes ------------------------------------------------------------------------------------------


def _change_bytes(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = sorted(random.randint(0, len(data)) for _ in range(2))
    match random.randrange(6):
        case 0:
            return data[:start] + random.choice(_BYTES) + data[start:]
        case 1:
            return data[:start] + data[end:]
        case 2:
            return data[:end] + data[start:end] * random.randint(1, 3) + data[end:]
        case 3:
            return data[:start]
        case 4:
            other = random.choice(seeds)
            return data[:start] + other[random.randint(0, len(other)) :]
        case _:
            return data[:start] + bytes([random.randrange(256)]) + data[start + 1 :]


# --- JSON -------------------------------------------------------------------------------------------


class _Fields(list[Any]):
    """An object as pairs, so that a key can be there twice."""


class _Written(str):
    """A value as it is to be written, whether it is JSON or not."""

    __slots__ = ()


def _change_json(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    try:
        root = [json.loads(data, object_pairs_hook=_Fields)]
    except (ValueError, RecursionError):
        return _change_bytes(random, data, seeds)
    slots = list(_slots(root))
    holder, at = random.choice(slots)
    try:
        # As text, because a value that was put into itself would have no end.
        others = [_Written(_write(_value_at(*slot))) for slot in random.choices(slots, k=2)]
        _change_slot(random, holder, at, others)
        return ",".join(map(_write, root)).encode("utf-8", "surrogateescape")
    except RecursionError:
        return _change_bytes(random, data, seeds)


def _slots(root: list[Any]) -> Iterator[tuple[list[Any], int]]:
    """Yield every place of a value: the list or the object that holds it, and where."""
    waiting = [root]
    while waiting:
        holder = waiting.pop()
        for at in range(len(holder)):
            yield holder, at
            if isinstance(value := _value_at(holder, at), list):
                waiting.append(value)


def _value_at(holder: list[Any], at: int) -> Any:
    return holder[at][1] if isinstance(holder, _Fields) else holder[at]


def _change_slot(random: Random, holder: list[Any], at: int, others: Sequence[Any]) -> None:
    value, key = _value_at(holder, at), holder[at][0] if isinstance(holder, _Fields) else None
    choice = random.randrange(7)
    if choice == 0:
        del holder[at]
    elif choice == 1:  # there twice, or often
        more = [random.choice((value, *others)) for _ in range(random.choice((1, 1, 50)))]
        holder[at:at] = [(key, each) for each in more] if key is not None else more
    elif choice == 2 and key is not None:
        holder[at] = (random.choice(("", "type", "\ud800", "id", "$ref", key.upper(), key + "s")), value)
    else:
        changed = _changed_value(random, value, others)
        holder[at] = (key, changed) if key is not None else changed


def _changed_value(random: Random, value: Any, others: Sequence[Any]) -> Any:
    choice = random.randrange(8)
    if choice == 0:
        return random.choice(others)
    if choice == 1:
        return [value]
    if choice == 2:
        return _Fields([(random.choice(("type", "text", "x")), value)])
    if choice == 3:
        opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
        depth = random.choice(_DEPTHS)
        return _Written(opening * depth + _write(value) + closing * depth)
    return _Written(random.choice(_VALUES))


def _write(value: Any) -> str:
    if isinstance(value, _Written):
        return value
    if isinstance(value, _Fields):
        return "{" + ",".join(f"{json.dumps(key)}:{_write(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    return json.dumps(value)


# --- lines, requests and text -----------------------------------------------------------------------


def _change_lines(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Change one line, or which lines there are. What stands before the JSON of a line (`data: `) stays."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(10):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, random.choice(lines))
        case 2:
            lines.insert(at, random.choice(random.choice(seeds).split(b"\n")))
        case 3:
            return _change_bytes(random, data, seeds)
        case _:
            begins = max(0, lines[at].find(b"{"))
            lines[at] = lines[at][:begins] + _change_json(random, lines[at][begins:], seeds)
    return b"\n".join(lines)


def _change_request(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Change the JSON behind the first empty line, or else the line of the request and its headers."""
    head, blank, body = data.partition(b"\n\n")
    if random.randrange(3):
        return head + blank + _change_json(random, body, seeds)
    return _change_text(random, head, seeds) + blank + body


def _change_text(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Change bytes, a word or a line."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            return _change_bytes(random, data, seeds)
        case 1:
            lines[at:at] = [random.choice(random.choice(seeds).split(b"\n"))]
        case 2:
            lines[at:at] = [lines[at]] * random.choice((1, 3, 100))
        case 3:
            opening = random.choice((b"[", b"{a: ", b"- ", b"{a=", b"("))
            lines[at] += opening * random.choice(_DEPTHS)
        case _:
            lines[at] = _change_word(random, lines[at])
    return b"\n".join(lines)


def _change_word(random: Random, line: bytes) -> bytes:
    words = line.split(b" ")
    at = random.randrange(len(words))
    new = random.choice(_WORDS + _VALUES).encode("utf-8", "surrogateescape")
    words[at] = random.choice((new, words[at] + new, words[at] + b" " + new))
    return b" ".join(words)


# --- archives ---------------------------------------------------------------------------------------


_HEADER = ((0, 100), (100, 8), (124, 12), (136, 12), (148, 8), (156, 1), (157, 100), (257, 8), (345, 155))
"""Where the fields of a header are: name, mode, size, time, checksum, type, link, magic, prefix."""
_CHECKSUM = slice(148, 156)
_FIELDS = (
    b"../x",
    b"/etc/passwd",
    b"\xff" * 8,
    b"777777777777",
    b"-1",
    b"\x80" + b"\xff" * 10,
    b"2",
    b"x",
    b"L",
    b"",
)


def _change_archive(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Change what is packed, the headers it is packed with, or the packing."""
    try:
        tar = gzip.decompress(data)
    except (OSError, EOFError, ValueError, zlib.error):
        return _change_bytes(random, data, seeds)
    match random.randrange(4):
        case 0:
            return _change_bytes(random, data, seeds)
        case 1:
            changed = _change_header(random, tar)
        case 2:
            changed = _change_bytes(random, tar, [tar])
        case _:
            changed = _change_member(random, tar)
    return gzip.compress(changed[:MAX_BYTES], 1, mtime=0)


def _change_header(random: Random, tar: bytes) -> bytes:
    heads = [at for at in range(0, len(tar) - 511, 512) if tar[at + 257 : at + 262] == b"ustar"]
    if not heads:
        return tar
    at = random.choice(heads)
    start, size = random.choice(_HEADER)
    header = bytearray(tar[at : at + 512])
    header[start : start + size] = random.choice(_FIELDS)[:size].ljust(size, b"\0")
    if random.randrange(4):  # so that more than the checksum is looked at
        header[_CHECKSUM] = b" " * 8
        header[_CHECKSUM] = b"%06o\0 " % sum(header)
    return tar[:at] + bytes(header) + tar[at + 512 :]


def _change_member(random: Random, tar: bytes) -> bytes:
    """Change the JSON of a file, and pack it as a good archive."""
    return _each_member(tar, random, lambda content: _change_json(random, content, [content]))


def _each_member(tar: bytes, random: Random, change: Callable[[bytes], bytes]) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            members = [(each, getattr(archive.extractfile(each), "read", bytes)()) for each in archive]
    except (tarfile.TarError, ValueError, OSError, KeyError, AttributeError, OverflowError, MemoryError):
        return tar
    packed = io.BytesIO()
    chosen = random.randrange(max(1, len(members)))
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, (member, content) in enumerate(members):
            new = change(content) if number == chosen else content
            plain = tarfile.TarInfo(member.name.encode("ascii", "ignore").decode()[-90:])
            plain.size = len(new)
            archive.addfile(plain, io.BytesIO(new))
    return packed.getvalue()


_CHANGES: dict[Shape, Change] = {
    "json": _change_json,
    "lines": _change_lines,
    "request": _change_request,
    "text": _change_text,
    "archive": _change_archive,
}
