"""How often, how many, how long: few in `make check`, some in `make test`, many in `make soak`. Decided here alone."""

import os
from typing import NamedTuple


class Counts(NamedTuple):
    """What is larger in a soak, by name."""

    kill_seeds: tuple[int, ...]
    """Each kills a process ten times, at moments that it draws: tests/crash."""
    program_deaths: int
    """Kills of each program in the middle of a task, each after a start: tests/runtimes/test_starts.py."""
    claude_retries: int
    """How often claude and opencode may try again in the conformance matrix; in use they do for half a minute."""
    whole_matrix: bool
    """Whether a program is certified by all rows, or by those without which there is no certificate."""
    crowd: int
    """Clients that stream at once, and how long one beside them does not read: tests/daemon."""
    stall_s: float
    stall_events: int
    missed_events: int
    """What a reader that comes back has missed."""
    gateway_rounds: int
    """Of twenty requests each: tests/gateway."""
    machine_examples: int
    machine_steps: int
    """What the state machine of the engine tries: tests/engine."""
    history_events: int
    """In a session that must cost no more to open than a short one: tests/scale."""
    unread_tasks: int
    """Of a thousand events each, that nobody reads: tests/scale."""
    races: int
    """How much longer than once a directory is swapped for a link under the file tools: tests/sandbox/files."""
    fault_kills: int
    """Of a daemon under load, with other faults between them: tests/chaos."""
    program_kills: int
    """The same with codex."""
    kills_in_a_start: int
    """Kills of a process while it starts a child, for each way to start one: tests/processes."""
    chaos_seeds: int
    """Runtimes that misbehave by chance: tests/testing."""
    fuzz_inputs: int
    """Hostile inputs for each parser that is cheap; fewer for those that are not: tests/fuzz."""
    fuzz_repeats: int
    """Inputs for each parser in which a piece of a good one is there a hundred thousand times: tests/fuzz."""
    channel_requests: int
    """Requests of one wrapped program: tests/channel."""
    arbiter_kills: int
    """Kills of an arbiter at moments drawn by chance: tests/channel."""
    extension_histories: int
    """Histories of handlers and tasks, with reloads, and as many with kills: tests/extensions."""
    examples: int
    """What hypothesis tries where a test says nothing else."""


_TEST = Counts(
    kill_seeds=(11,),
    program_deaths=1,
    claude_retries=1,
    whole_matrix=False,
    crowd=100,
    stall_s=3,
    stall_events=20_000,
    missed_events=50_000,
    gateway_rounds=50,
    machine_examples=60,
    machine_steps=40,
    history_events=20_000,
    unread_tasks=15,
    races=1,
    fault_kills=3,
    program_kills=1,
    kills_in_a_start=6,
    chaos_seeds=100,
    fuzz_inputs=300,
    fuzz_repeats=12,
    channel_requests=300,
    arbiter_kills=2,
    extension_histories=6,
    examples=100,
)
SOAK = Counts(
    kill_seeds=(11, 12, 13, 14, 15),
    program_deaths=20,
    claude_retries=6,
    whole_matrix=True,
    crowd=1_000,
    stall_s=60,
    stall_events=100_000,
    missed_events=500_000,
    gateway_rounds=500,
    machine_examples=300,
    machine_steps=80,
    history_events=100_000,
    unread_tasks=50,
    races=10,
    fault_kills=200,
    program_kills=200,
    kills_in_a_start=100,
    chaos_seeds=1_000,
    fuzz_inputs=20_000,
    fuzz_repeats=100,
    channel_requests=10_000,
    arbiter_kills=50,
    extension_histories=100,
    examples=1_000,
)
# What `make check` leaves out needs no figures of its own.
_CHECK = _TEST._replace(examples=20)
COUNTS = {"check": _CHECK, "test": _TEST, "soak": SOAK}[os.environ.get("CODESDK_COUNTS", "test")]
