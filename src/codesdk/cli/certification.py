"""`codesdk runtimes certify`: the matrix on the installed program, shown row by row → a certificate, or why there is none."""

import sys
from collections.abc import Sequence

import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.target.place import reading
from codesdk.cli.view.matrix import MatrixView, built_in, network
from codesdk.cli.view.out import write_json, write_text
from codesdk.cli.view.safe import printable
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes import Program, create_runtime, find_program
from codesdk.testing.certification import Checked, certify
from codesdk.testing.comparison import Comparison, compare
from codesdk.testing.recordings import Recording, read_recording

_SHOWN_INPUTS = 3
"""How many changed requests of a session are shown whole."""


def run_certify(setup: Setup, entry: RuntimeEntry, against: Sequence[str], as_json: bool) -> int:
    """Certify the program of a runtime, on this machine and for this user. Return the exit code."""
    if setup.url is not None:
        raise InvalidRequest(
            "A program is certified where it runs, by whoever operates it: run this command on the daemon's"
            " machine, as its user, without --url."
        )
    with network():
        return run_async(_certify(setup, entry, against, as_json))


async def _certify(setup: Setup, entry: RuntimeEntry, against: Sequence[str], as_json: bool) -> int:
    recordings = await _recordings(setup, entry, against)
    program = await find_program(entry, allow_untested=True)
    if not as_json:
        words = f"{entry.name}: {printable(program.path)}, version {program.version}, {program.state}\n"
        write_text(sys.stdout, words)
    if program.state == "tested":
        return await _tested(entry, program, recordings, as_json)
    comparisons: list[Comparison] = []
    view = MatrixView(entry.name, as_json=as_json)

    async def judge() -> str | None:
        comparisons.extend(await _compare_all(entry, recordings, as_json))
        return _problem(comparisons)

    checked = await certify(
        entry,
        built_in(entry.name),
        told=view.show,
        sessions=[recording.session_id for recording in recordings],
        compare=judge,
    )
    view.sum_up()
    if as_json:
        write_json(_report(entry, checked, comparisons))
    else:
        write_text(sys.stdout, _verdict(entry, checked))
    return OK if checked.issued.problem is None else FAILED


async def _tested(
    entry: RuntimeEntry, program: Program, recordings: Sequence[Recording], as_json: bool
) -> int:
    """Only compare: the tested version needs no certificate."""
    problem = _problem(await _compare_all(entry, recordings, as_json))
    words = "This is the tested version: it needs no certificate."
    if as_json:
        write_json({"runtime": entry.name, "version": program.version, "state": "tested", "problem": problem})
    else:
        write_text(sys.stdout, f"{words}\n")
    return OK if problem is None else FAILED


async def _recordings(setup: Setup, entry: RuntimeEntry, against: Sequence[str]) -> list[Recording]:
    """Read the sessions to compare with, all before anything is started."""
    if not against:
        return []
    found: list[Recording] = []
    async with reading(setup.data_dir) as archive:
        for given in against:
            row = await find_session(archive, given)
            if row.runtime != entry.name:
                raise InvalidRequest(
                    f"Session {short(row.session_id)} is of {row.runtime}, not {entry.name}."
                )
            found.append(await read_recording(archive, row.session_id))
    return found


async def _compare_all(
    entry: RuntimeEntry, recordings: Sequence[Recording], as_json: bool
) -> list[Comparison]:
    found: list[Comparison] = []
    for recording in recordings:
        comparison = await compare(create_runtime(entry.name), recording)
        found.append(comparison)
        if as_json:
            write_json({"runtime": entry.name, **msgspec.to_builtins(comparison)})
        else:
            write_text(sys.stdout, _described(comparison))
    return found


def _problem(comparisons: Sequence[Comparison]) -> str | None:
    others = [short(comparison.session_id) for comparison in comparisons if not comparison.behaves]
    return f"it does something else than recorded in {', '.join(others)}" if others else None


def _described(found: Comparison) -> str:
    """Return what changed in a session, for people."""
    left = f" ({found.left_out} more cannot be played again)" if found.left_out else ""
    lines = [f"  {short(found.session_id)}: {found.tasks} {_plural('task', found.tasks)}{left}"]
    counts = {"inputs": found.inputs, "calls": found.calls, "decisions": found.decisions}
    for what, changes in counts.items():
        lines.append(f"    {what}: {f'{len(changes)} changed' if changes else 'unchanged'}")
        shown = changes[:_SHOWN_INPUTS] if what == "inputs" else changes
        lines += [f"      {printable(line)}" for change in shown for line in change.split("\n")]
        if len(shown) < len(changes):
            lines.append(f"      and {len(changes) - len(shown)} more")
    if found.problem is not None:
        lines.append(f"    problem: {printable(found.problem)}")
    return "\n".join(lines) + "\n"


def _verdict(entry: RuntimeEntry, checked: Checked) -> str:
    issued, version = checked.issued, checked.program.version
    certificate = issued.certificate
    if certificate is None:
        taken = " An older certificate for these files was taken back." if issued.withdrawn else ""
        assert entry.program is not None, "it has a program"
        return f"Not certified: {issued.problem}.{taken} Install the tested version with: {entry.install}\n"
    missing = ", ".join(f"{row.name} ({row.outcome})" for row in certificate.unchecked)
    return (
        f"Certified: {entry.name} {version}, for these files, CodeSDK {certificate.codesdk} and this adapter.\n"
        f"{f'Not shown: {missing}.' if missing else 'Every row was shown.'}\n"
        f"The certificate is {printable(str(issued.path))}\n"
    )


def _report(entry: RuntimeEntry, checked: Checked, comparisons: Sequence[Comparison]) -> dict[str, object]:
    certificate = checked.issued.certificate
    return {
        "runtime": entry.name,
        "version": checked.program.version,
        "state": "untested" if certificate is None else "certified",
        "problem": checked.issued.problem,
        "certificate": None if checked.issued.path is None else str(checked.issued.path),
        "unchecked": [] if certificate is None else [row.name for row in certificate.unchecked],
        "sessions": {found.session_id: found.behaves for found in comparisons},
    }


def _plural(what: str, count: int) -> str:
    return what if count == 1 else f"{what}s"
