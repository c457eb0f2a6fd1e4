"""Shared by the tests of the sandboxes."""

from collections.abc import AsyncGenerator, Generator

import pytest
from tests.sandbox.oci.engine import IMAGE, RunningEngine, running_engine

from codesdk.sandbox.oci.sandbox import OciSandbox


@pytest.fixture(scope="session")
def engine() -> Generator[RunningEngine]:
    """One container engine for all tests that a process runs."""
    with running_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
async def containers(engine: RunningEngine) -> AsyncGenerator[OciSandbox]:
    """One container sandbox for all tests that a process runs."""
    sandbox = OciSandbox(IMAGE, engine=engine.socket)
    yield sandbox
    await sandbox.close()


@pytest.fixture
async def sandbox(containers: OciSandbox, engine: RunningEngine) -> AsyncGenerator[OciSandbox]:
    """The same, and nothing is left of the session `ses_1` afterwards."""
    yield containers
    await containers.close_session("ses_1")
    assert engine.containers() == []
