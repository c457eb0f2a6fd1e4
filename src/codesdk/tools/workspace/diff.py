"""Two versions of a file, as bytes → a unified diff that `patch`, `git apply` and `patch.apply` accept."""

from codesdk.tools.workspace.steps import Steps, TooMuchWork

_CONTEXT = 3
_MAX_COMPARED = 4_000
_STEPS = 3_000_000


def comparing() -> Steps:
    """Return the steps that comparing may take, in all files of one call together."""
    return Steps(_STEPS)


def unified(path: str, before: bytes | None, after: bytes | None, steps: Steps | None = None) -> str:
    """Return the diff; None stands for a missing file. Bytes that are not UTF-8 are shown as U+FFFD.

    For files with NUL bytes it only says that they differ. Only the lines between the common beginning and
    end are compared, and if there are too many, or too many alike, they are shown as replaced as a whole: comparing takes
    cubic time.
    """
    old_name = "/dev/null" if before is None else _name("a/" + path)
    new_name = "/dev/null" if after is None else _name("b/" + path)
    before, after = before or b"", after or b""
    if before != after and b"\0" in before + after:
        return f"Binary files {old_name.rstrip()} and {new_name.rstrip()} differ\n"
    old, new = lines_of(before), lines_of(after)
    groups = _groups(old, new, steps or comparing())
    if not groups:
        return ""
    out = [f"--- {old_name}\n", f"+++ {new_name}\n"]
    for group in groups:
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        out.append(f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@\n")
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                out += [_line(" ", line) for line in old[a1:a2]]
            else:
                out += [_line("-", line) for line in old[a1:a2]]
                out += [_line("+", line) for line in new[b1:b2]]
    return "".join(out)


def _name(path: str) -> str:
    """Return a path as git writes it: quoted if it contains anything that could end or confuse the line."""
    if path.isprintable() and not any(char in path for char in '"\\'):
        return path + "\t" if " " in path else path  # the tab ends a name that contains spaces
    quoted = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in path.encode("utf-8", "surrogateescape")
    )
    return f'"{quoted}"'


Opcode = tuple[str, int, int, int, int]


def _groups(old: list[bytes], new: list[bytes], steps: Steps) -> list[list[Opcode]]:
    """Return the changes with their context, grouped into hunks."""
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    if not a and not b:
        return []
    middle = _compared(a, b, steps)
    codes = [(tag, a1 + head, a2 + head, b1 + head, b2 + head) for tag, a1, a2, b1, b2 in middle]
    first, (_, _, a_end, _, b_end) = max(0, head - _CONTEXT), codes[-1]
    last = min(tail, _CONTEXT)
    lead: list[Opcode] = [("equal", first, head, first, head)] if head > first else []
    trail: list[Opcode] = [("equal", a_end, a_end + last, b_end, b_end + last)] if last else []
    return _split([*lead, *codes, *trail])


def _compared(a: list[bytes], b: list[bytes], steps: Steps) -> list[Opcode]:
    """Return how one becomes the other, or that it is replaced as a whole if there is too much to compare."""
    whole: list[Opcode] = [("replace", 0, len(a), 0, len(b))]
    if not a or not b or len(a) + len(b) > _MAX_COMPARED:
        return whole
    import difflib
    from collections import Counter
    from itertools import accumulate

    times = Counter(b)
    # The matcher looks, for each line of a part, at every place that has the same line in the other file.
    before = [0, *accumulate(1 + times[line] for line in a)]

    class Matcher(difflib.SequenceMatcher[bytes]):
        def find_longest_match(
            self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
        ) -> difflib.Match:
            steps.take(before[len(a) if ahi is None else ahi] - before[alo])
            return super().find_longest_match(alo, ahi, blo, bhi)

    try:
        return list(Matcher(None, a, b, autojunk=False).get_opcodes())
    except TooMuchWork:
        return whole


def _split(codes: list[Opcode]) -> list[list[Opcode]]:
    """Split where there are more lines between two changes than both need as context."""
    groups: list[list[Opcode]] = [[]]
    for index, code in enumerate(codes):
        tag, a1, a2, b1, b2 = code
        if tag == "equal" and 0 < index < len(codes) - 1 and a2 - a1 > 2 * _CONTEXT:
            groups[-1].append((tag, a1, a1 + _CONTEXT, b1, b1 + _CONTEXT))
            groups.append([(tag, a2 - _CONTEXT, a2, b2 - _CONTEXT, b2)])
        else:
            groups[-1].append(code)
    return groups


def _common(a: list[bytes], b: list[bytes]) -> int:
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count


def lines_of(data: bytes) -> list[bytes]:
    """Split after each line feed, and nowhere else."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _range(start: int, stop: int) -> str:
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _line(sign: str, line: bytes) -> str:
    text = sign + line.decode("utf-8", "replace")
    return text if text.endswith("\n") else text + "\n\\ No newline at end of file\n"
