"""Every parser that meets bytes of others gets hostile ones: those that once did harm, and new ones from a seed."""

import base64
import contextlib
import hashlib
import logging
import resource
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.counts import COUNTS
from tests.fuzz.guard import Endless, guarded
from tests.fuzz.mutations import mutate, repeat
from tests.fuzz.targets import TARGETS, Run, Target

CORPUS = Path(__file__).parent / "corpus"
MEMORY_BYTES = 4 * 1024**3
_BATCH = 200  # inputs for which a target is opened once, so that what it keeps has an end
_SMALLER_TRIES = 400


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """An input that takes gigabytes gets a `MemoryError`, in place of the machine's last."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hostile_bytes_get_an_answer(target: Target):
    for path in sorted((CORPUS / target.name).glob("*")):
        _try(target, [(path.name, path.read_bytes())])
    count = max(1, COUNTS.fuzz_inputs // target.cost)
    for start in range(0, count, _BATCH):
        _try(target, list(_inputs(target, range(start, min(count, start + _BATCH)))))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_piece_that_is_repeated_a_hundred_thousand_times_gets_an_answer(target: Target):
    """What takes more than a little for each byte meets the guard."""
    seeds = target.seeds()
    names = [f"{target.name}:repeated:{number}" for number in range(COUNTS.fuzz_repeats)]
    _try(target, [(name, repeat(Random(name), seeds, target.shape)) for name in names])


def test_every_folder_of_the_corpus_is_of_a_target():
    assert {path.name for path in CORPUS.iterdir()} <= {target.name for target in TARGETS}


def _inputs(target: Target, numbers: range) -> Iterator[tuple[str, bytes]]:
    seeds = target.seeds()
    for number in numbers:
        name = f"{target.name}:{number}"
        yield name, mutate(Random(name), seeds, target.shape)


def _try(target: Target, inputs: list[tuple[str, bytes]]) -> None:
    with target.opened() as run:
        failed = next(((*each, error) for each in inputs if (error := _failure(target, run, each[1]))), None)
    if failed is not None:
        name, data, error = failed
        pytest.fail(_report(target, name, _smallest(target, data, type(error)), error), pytrace=False)


def _failure(target: Target, run: Run, data: bytes) -> BaseException | None:
    """Run one input. Return the error if it is not one of the target's answers."""
    try:
        with guarded(), _no_errors_logged():
            run(data)
    except target.answers:
        return None
    except (Exception, Endless) as error:
        return error
    return None


@contextlib.contextmanager
def _no_errors_logged() -> Iterator[None]:
    """A bug that is caught and logged is a bug."""
    logged = _Errors()
    logger = logging.getLogger("codesdk")
    logger.addHandler(logged)
    try:
        yield
    finally:
        logger.removeHandler(logged)
    assert not logged.lines, logged.lines


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def _smallest(target: Target, data: bytes, kind: type[BaseException]) -> bytes:
    """Return as few of the bytes as still fail in the same way; all of them if they do no harm on their own."""

    def fails(smaller: bytes) -> bool:
        with target.opened() as run:
            return isinstance(_failure(target, run, smaller), kind)

    return data if kind is Endless or not fails(data) else _without_needless(data, fails)


def _without_needless(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    tries, size = 0, len(data) // 2
    while size and tries < _SMALLER_TRIES:
        at = 0
        while at < len(data) and tries < _SMALLER_TRIES:
            smaller = data[:at] + data[at + size :]
            tries += 1
            if fails(smaller):
                data = smaller
            else:
                at += size
        size //= 2
    return data


def _report(target: Target, name: str, data: bytes, error: BaseException) -> str:
    """Say what happened, and how to keep the input."""
    kept = f"tests/fuzz/corpus/{target.name}/{hashlib.sha256(data).hexdigest()[:12]}"
    trace = "".join(traceback.format_tb(error.__traceback__)[-6:])
    return (
        f"{target.name} failed on the input {name} with {type(error).__name__}: {str(error)[:500]}\n{trace}\n"
        f"smallest input, {len(data):,} bytes: {data[:300]!r}\nto keep it:\n"
        f"mkdir -p {Path(kept).parent} && base64 -d > {kept} <<< {base64.b64encode(data).decode()}"
    )
