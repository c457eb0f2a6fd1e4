"""`codesdk runtimes probe`: the command of an unknown agent → findings as they are made, and its row, printed or kept."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.view.matrix import MatrixView, network
from codesdk.cli.view.out import write_bytes, write_json, write_text
from codesdk.cli.view.safe import one_line, printable
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes import AgentRow, OwnAgent, check_name, write_own
from codesdk.testing.network import can_be_alone, is_alone
from codesdk.testing.probe.check import check_agent
from codesdk.testing.probe.probing import absolute, probe_agent
from codesdk.testing.probe.state import Finding, Probe

_SIGNS = {"learned": "✓", "note": "·", "unknown": "?"}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of the command is to do."""

    command: tuple[str, ...]
    variables: Sequence[str] = ()
    row: str | None = None
    name: str | None = None
    check: bool = False
    with_network: bool = False
    timeout_s: float
    as_json: bool = False


def run_probe(wanted: Wanted) -> int:
    """Probe an agent, and check it if that is wanted. Return the exit code."""
    if wanted.name is not None:
        check_name(wanted.name)
    apart = can_be_alone() or is_alone()
    if not apart and wanted.with_network and not wanted.as_json:
        write_text(
            sys.stderr, "· network        the agent is not kept from it here, as --with-network allows\n"
        )
    elif not apart and not wanted.with_network:
        raise InvalidRequest(
            "The agent cannot be kept from the network here: that takes Linux, root and the program ip. Run this as"
            " root, or in a network that has only loopback, or allow the agent the network: --with-network."
        )
    command = absolute(wanted.command)
    variables = dict(_pair(text) for text in wanted.variables)
    given = None if wanted.row is None else _read(wanted.row)
    with network():
        return run_async(_run(wanted, command, given, variables))


async def _run(
    wanted: Wanted,
    command: tuple[str, ...],
    given: OwnAgent | AgentRow | None,
    variables: Mapping[str, str],
) -> int:
    if isinstance(given, OwnAgent) and wanted.check and not wanted.variables:
        return await _check(wanted, msgspec.structs.replace(given, command=command))
    probe = await probe_agent(
        command,
        lambda finding: _show(finding, as_json=wanted.as_json),
        row=given.row if isinstance(given, OwnAgent) else given,
        variables=variables,
        timeout_s=wanted.timeout_s,
    )
    _sum_up(wanted, probe)
    if not probe.usable:
        return FAILED
    return await _check(wanted, probe.agent(wanted.name or "given")) if wanted.check else OK


async def _check(wanted: Wanted, agent: OwnAgent) -> int:
    """Play the rows of the matrix on an agent that is known now."""
    view = MatrixView(f"acp:{agent.row.name}", as_json=wanted.as_json)
    sound = await check_agent(agent, view.show)
    view.sum_up()
    return OK if sound else FAILED


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        write_json(finding)
        return
    means = f" {finding.means}" if finding.means else ""
    words = one_line(f"{finding.words}{means}", 600)
    write_text(sys.stderr, f"{_SIGNS[finding.certainty]} {finding.about:14} {words}\n")


def _sum_up(wanted: Wanted, probe: Probe) -> None:
    """Show or keep the row, unless nothing can be done with it."""
    agent = probe.agent(wanted.name or "given")
    kept = write_own(wanted.name, agent) if wanted.name is not None and probe.usable else None
    if wanted.as_json:
        report: dict[str, Any] = {"usable": probe.usable, "written": None if kept is None else str(kept)}
        write_json(report | {"agent": agent})
    elif not probe.usable:
        write_text(sys.stderr, "No session could use this agent, so there is no row.\n")
    elif kept is None:
        write_bytes(msgspec.json.format(msgspec.json.encode(agent), indent=2) + b"\n")
    else:
        write_text(sys.stderr, f"Written: {printable(str(kept))}. The runtime is acp:{wanted.name}.\n")


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise InvalidRequest(f"--env takes NAME=VALUE, not {text!r}.")
    return name, value


def _read(path: str) -> OwnAgent | AgentRow:
    """Return what a file says of an agent: all that an earlier run wrote, or a row in which anything may be missing."""
    try:
        found: Any = msgspec.json.decode(Path(path).read_bytes())
        if not isinstance(found, dict):
            raise msgspec.ValidationError("it must be an object")
        if "row" in found:
            return msgspec.convert(found, OwnAgent)
        return msgspec.convert({"wire": "chat", "model": "", **found}, AgentRow)
    except OSError as error:
        raise InvalidRequest(f"The row {path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} is not a row: {error}") from None
