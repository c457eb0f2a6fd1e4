"""The hunks of a patch and the bytes of a file → the new content, or why a hunk does not fit. Pure.

A hunk goes to the line it names if its lines are there, else to the only other place that has them. One
that shows no line after its change may mean the end of the file: if it fits there too, it is refused. There
is no fuzz.
"""

from collections.abc import Sequence

from codesdk.tools.patch.parsing import Hunk
from codesdk.tools.workspace.diff import lines_of
from codesdk.tools.workspace.matching import find_lines
from codesdk.tools.workspace.steps import Steps

_SHOWN = 5
_MOST = 11  # places that are counted
_NEAR = 100_000  # lines that are compared to say what is wrong


class DoesNotApply(Exception):
    """A hunk does not fit; the message says which, and what is there instead."""


def apply_hunks(data: bytes, hunks: Sequence[Hunk], steps: Steps | None = None) -> tuple[bytes, list[int]]:
    """Return the new content, and how many lines each hunk was off. Raise `DoesNotApply` or `TooMuchWork`.

    `steps` are those of the whole patch: each hunk that is not where it says is looked for in the whole file.
    """
    lines = lines_of(data)
    steps = steps or Steps()
    steps.take(len(lines))
    out: list[bytes] = []
    done = drift = 0
    offsets: list[int] = []
    for hunk in hunks:
        # A hunk without old lines names the line it goes after; any other names its first line.
        said = hunk.start - 1 if hunk.old else hunk.start
        at = _place(lines, hunk, said + drift, done, steps)
        drift = at - said
        offsets.append(drift)
        out += lines[done:at]
        out += hunk.new
        done = at + len(hunk.old)
    out += lines[done:]
    # Joined, such a line would merge with the next one.
    if any(not line.endswith(b"\n") for line in out[:-1]):
        raise DoesNotApply("it would put lines after one that is marked as having no line end")
    return b"".join(out), offsets


def _place(lines: list[bytes], hunk: Hunk, expected: int, first: int, steps: Steps) -> int:
    """Return the index of the line that a hunk goes to, from `first` on."""
    if not hunk.old:
        if lines and expected != len(lines):
            raise DoesNotApply(
                f"hunk {hunk.number} only adds lines and shows none of the file; include some lines around them"
            )
        return len(lines)
    end = len(lines) - len(hunk.old)
    at_end = hunk.ends and end >= first and _fits(lines, hunk.old, end)
    if at_end and hunk.new and not hunk.new[-1].endswith(b"\n"):
        return end  # a line without a line end can only be the last
    if expected >= first and _fits(lines, hunk.old, expected) and (expected == end or not at_end):
        return expected
    steps.take(2 * (len(lines) + len(hunk.old)))
    places = find_lines(lines, hunk.old, _MOST, first)
    if len(places) == 1:
        return places[0]
    if places:
        numbers = ", ".join(str(at + 1) for at in places[:_SHOWN])
        others = "others" if len(places) == _MOST else f"{len(places) - _SHOWN} more"
        more = f" and {others}" if len(places) > _SHOWN else ""
        raise DoesNotApply(
            f"hunk {hunk.number} says line {hunk.start}, but could go to lines {numbers}{more};"
            " include more lines around the change"
        )
    steps.take(6 * (len(lines) + len(hunk.old)) + _NEAR)
    raise DoesNotApply(_why(lines, hunk, expected, first))


def _fits(lines: list[bytes], old: list[bytes], at: int) -> bool:
    return lines[at : at + len(old)] == old


def _why(lines: list[bytes], hunk: Hunk, expected: int, first: int) -> str:
    """Return why a hunk does not fit: the first difference, at the place where most of its lines match."""
    start = f"hunk {hunk.number} does not fit"
    if find_lines(lines, hunk.old, 1):  # not from `first` on, as is known
        return f"{start}: its lines come before those of the hunk before it; put the hunks in order"
    ending = _line_ends(lines, hunk)
    if ending is not None:
        return f"{start}: {ending}"
    at = _nearest(lines, hunk.old, expected)
    for index, wanted in enumerate(hunk.old):
        there = lines[at + index] if 0 <= at + index < len(lines) else None
        if there == wanted:
            continue
        if there is None:
            return f"{start}: the file ends after line {len(lines)}, the hunk goes on with {_quote(wanted)}"
        if there.rstrip(b"\n") == wanted.rstrip(b"\n"):
            has = "has" if there.endswith(b"\n") else "has no"
            return (
                f"{start}: line {at + index + 1} of the file {has} line end, in the hunk it is the other way"
            )
        return f"{start}: line {at + index + 1} of the file is {_quote(there)}, the hunk has {_quote(wanted)}"
    return start


def _line_ends(lines: list[bytes], hunk: Hunk) -> str | None:
    bare = [line.rstrip(b"\r\n") for line in lines]
    wanted = [line.rstrip(b"\r\n") for line in hunk.old]
    if not find_lines(bare, wanted, 1):
        return None
    if any(line.endswith(b"\r\n") for line in lines) and not any(line.endswith(b"\r\n") for line in hunk.old):
        return "the file has Windows line ends (\\r\\n) and the patch has \\n; end its lines with \\r\\n"
    if any(line.endswith(b"\r\n") for line in hunk.old) and not any(line.endswith(b"\r\n") for line in lines):
        return "the patch has Windows line ends (\\r\\n) and the file has \\n"
    return None


def _nearest(lines: list[bytes], old: list[bytes], expected: int) -> int:
    """Return the place where most lines of a hunk match; of several, the one nearest to `expected`.

    Of very many, only the nearest are compared: it is for the words of an error.
    """
    wanted = {line: index for index, line in reversed(list(enumerate(old)))}
    starts = {at - wanted[line] for at, line in enumerate(lines) if line in wanted}
    starts.add(max(0, min(expected, len(lines))))
    near = sorted(starts, key=lambda at: abs(at - expected))[: max(1, _NEAR // len(old))]
    return min(near, key=lambda at: -_common(lines, old, at))


def _common(lines: list[bytes], old: list[bytes], at: int) -> int:
    return sum(
        1 for index, line in enumerate(old) if 0 <= at + index < len(lines) and lines[at + index] == line
    )


def _quote(line: bytes) -> str:
    text = line.rstrip(b"\n").decode("utf-8", "replace")
    return repr(text if len(text) <= 120 else text[:119] + "…")
