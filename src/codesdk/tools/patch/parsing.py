"""A unified diff, as `git diff` or `diff -u` write it → the changes to each file. Pure and strict.

Errors name the line, so that a model can fix its patch.
"""

import re
from typing import NoReturn

import msgspec

MAX_FILES = 500
_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NOWHERE = "/dev/null"


class BadPatch(ValueError):
    """The text is not a patch that can be applied; the message says where and why."""


class Hunk(msgspec.Struct, frozen=True):
    """A part of a file to replace. Lines include their line ends; `start` is a line number from 1."""

    start: int
    old: list[bytes]
    new: list[bytes]
    number: int
    """Its number within its file, from 1."""
    ends: bool = False
    """Whether it shows no line after its last change, as a hunk at the end of a file does."""


class FilePatch(msgspec.Struct):
    """The changes to one file. Without an `old` path it is created, without a `new` path removed."""

    old: str | None
    new: str | None
    hunks: list[Hunk] = []
    executable: bool | None = None
    copy: bool = False

    @property
    def name(self) -> str:
        """The path to name in messages."""
        return self.new or self.old or ""


def parse(text: bytes) -> list[FilePatch]:
    """Return the files of a patch in its order. Raise `BadPatch`."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: bytes) -> None:
        self._lines = text.split(b"\n")
        # A line feed at the end begins no further line.
        if self._lines[-1] == b"":
            self._lines.pop()
        self._at = 0

    def read(self) -> list[FilePatch]:
        files: list[FilePatch] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(b"diff --git "):
                files.append(self._git())
            elif line.startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
                files.append(self._plain())
            elif _HUNK.match(line):
                self._fail("a hunk must come after the --- and +++ lines of its file")
            else:
                self._at += 1  # text around the patch, such as a commit message
            if len(files) > MAX_FILES:
                self._fail(f"a patch may change {MAX_FILES} files, not more")
        if not files:
            raise BadPatch("it has no file: a file begins with the lines --- a/path and +++ b/path")
        return files

    def _peek(self, ahead: int) -> bytes:
        at = self._at + ahead
        return self._lines[at] if at < len(self._lines) else b""

    def _fail(self, why: str) -> NoReturn:
        raise BadPatch(f"line {self._at + 1}: {why}")

    def _plain(self) -> FilePatch:
        old, new = self._names()
        self._require_one_file(old, new)
        if not _HUNK.match(self._peek(0)):
            self._fail("a hunk such as @@ -1,3 +1,4 @@ must follow the names")
        return FilePatch(old, new, self._hunks())

    def _names(self) -> tuple[str | None, str | None]:
        """Read the --- and +++ lines; drop the prefixes a/ and b/ if both have them."""
        old, new = self._name(self._peek(0)[4:]), self._name(self._peek(1)[4:])
        self._at += 2
        if all(name == _NOWHERE or name.startswith(side) for name, side in ((old, "a/"), (new, "b/"))):
            old, new = (name if name == _NOWHERE else name[2:] for name in (old, new))
        return None if old == _NOWHERE else old, None if new == _NOWHERE else new

    def _name(self, raw: bytes) -> str:
        raw = raw.rstrip(b"\r")
        if raw.startswith(b'"'):
            end = re.match(rb'"((?:[^"\\]|\\.)*)"', raw)
            if end is None:
                self._fail("a quoted name has no end")
            raw = _ESCAPE.sub(_unescape, end[1])
        else:
            raw = raw.split(b"\t", 1)[0].rstrip()  # a date may follow
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            self._fail("a name is not UTF-8")
        if not name:
            self._fail("a name is missing")
        return name

    def _git(self) -> FilePatch:
        """Read a file with git's headers, which may rename it or change its mode without any hunk."""
        header = self._lines[self._at]
        self._at += 1
        told: dict[bytes, bytes] = {}
        known = rb"(old mode|new mode|deleted file mode|new file mode|rename from|rename to|copy from|copy to|similarity index|dissimilarity index|index) ?(.*)"
        while (found := re.fullmatch(known, self._peek(0).rstrip(b"\r"))) is not None:
            told[found[1]] = found[2]
            self._at += 1
        if self._peek(0).startswith((b"GIT binary patch", b"Binary files ")):
            self._fail("binary changes cannot be applied; write the file another way")
        patch = self._git_paths(header, told)
        mode = told.get(b"new mode") or told.get(b"new file mode")
        if mode is not None:
            if mode not in (b"100644", b"100755"):
                self._fail(f"the mode {mode.decode('ascii', 'replace')} is not one of a regular file")
            patch.executable = mode == b"100755"
        return patch

    def _git_paths(self, header: bytes, told: dict[bytes, bytes]) -> FilePatch:
        if self._peek(0).startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
            old, new = self._names()
            hunks = self._hunks()
        else:
            old = new = self._same_name(header)
            hunks = []
        if b"rename to" in told or b"copy to" in told:
            what = b"rename" if b"rename to" in told else b"copy"
            if what + b" from" not in told:
                self._fail(f"{what.decode()} to comes without {what.decode()} from")
            old, new = self._name(told[what + b" from"]), self._name(told[what + b" to"])
        else:
            old = None if b"new file mode" in told else old
            new = None if b"deleted file mode" in told else new
            self._require_one_file(old, new)
        return FilePatch(old, new, hunks, copy=b"copy to" in told)

    def _require_one_file(self, old: str | None, new: str | None) -> None:
        if old is None and new is None:
            self._fail("a file has no name")
        if old is not None and new is not None and old != new:
            self._fail(
                f"the names {old} and {new} differ; a rename needs the lines rename from and rename to"
            )

    def _same_name(self, header: bytes) -> str | None:
        """Return the name in `diff --git a/x b/x` if both are the same; else other lines must give it."""
        rest = header[len(b"diff --git ") :].rstrip(b"\r")
        if rest.startswith(b'"'):
            return self._name(rest).removeprefix("a/")
        half = len(rest) // 2
        first, second = rest[:half], rest[half + 1 :]
        if first.startswith(b"a/") and second.startswith(b"b/") and first[2:] == second[2:]:
            return self._name(first[2:])
        return None

    def _hunks(self) -> list[Hunk]:
        hunks: list[Hunk] = []
        while (found := _HUNK.match(self._peek(0))) is not None:
            hunks.append(self._hunk(found, len(hunks) + 1))
        return hunks

    def _hunk(self, head: re.Match[bytes], number: int) -> Hunk:
        first = self._at
        counts = [int(count) if count is not None else 1 for count in (head[2], head[4])]
        old: list[bytes] = []
        new: list[bytes] = []
        sign = b" "
        self._at += 1
        while len(old) < counts[0] or len(new) < counts[1]:
            if self._at >= len(self._lines):
                self._miscounted(first, counts, old, new)
            line = self._lines[self._at]
            sign, rest = line[:1] or b" ", line[1:] + b"\n"  # an empty context line may lack its space
            if sign not in b" +-" or (line.startswith(b"diff --git ")):
                self._miscounted(first, counts, old, new)
            self._at += 1
            if sign != b"+":
                old.append(rest)
            if sign != b"-":
                new.append(rest)
            if self._peek(0).startswith(b"\\ "):
                self._at += 1
                for side in (old,) if sign == b"-" else (new,) if sign == b"+" else (old, new):
                    side[-1] = side[-1][:-1]
        if len(old) != counts[0] or len(new) != counts[1]:
            self._miscounted(first, counts, old, new)
        return Hunk(int(head[1]), old, new, number, ends=sign != b" ")

    def _miscounted(self, first: int, counts: list[int], old: list[bytes], new: list[bytes]) -> NoReturn:
        self._at = first
        self._fail(
            f"the hunk says {counts[0]} old and {counts[1]} new lines, but up to where it ends there are"
            f" {len(old)} and {len(new)}; each line begins with a space, - or +"
        )


def _unescape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _LETTERS.get(code, code)
