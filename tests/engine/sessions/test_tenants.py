"""Several principals in one engine: a runtime that keeps credentials does not share a process with another's."""

from typing import Literal

import msgspec
import pytest

from codesdk.contract.capabilities import Capabilities, Isolation, IsolationMode
from codesdk.contract.errors import Forbidden
from codesdk.contract.settings import SessionConfig
from codesdk.engine.sessions.creation import first_event
from codesdk.testing.fakes import FakeRuntime

CONFIG = SessionConfig(runtime="fake", workspace="/w")


class Hosted(FakeRuntime):
    def __init__(self, auth: Literal["none", "oauth_local"], modes: list[IsolationMode]) -> None:
        super().__init__()
        self._auth, self._modes = auth, modes

    def capabilities(self) -> Capabilities:
        capabilities = super().capabilities()
        return msgspec.structs.replace(
            capabilities,
            auth_model=self._auth,
            supported_isolation_modes=self._modes,
            recommended_isolation_mode="in_process",
        )


@pytest.mark.parametrize("modes", [["in_process"], ["in_process", "subprocess"]])
def test_credentials_on_disk_and_a_shared_process_are_refused_for_tenants(modes: list[IsolationMode]):
    runtime = Hosted("oauth_local", modes)  # what it might support, nobody does for it
    with pytest.raises(Forbidden, match=r"keeps credentials on disk.*--hosting subprocess.*--external"):
        first_event(CONFIG, runtime, "alice")
    assert first_event(CONFIG, runtime, "local").isolation == Isolation(level="namespaced", mode="in_process")


def test_a_runtime_without_credentials_may_be_shared():
    made = first_event(CONFIG, Hosted("none", ["in_process"]), "alice")
    assert made.isolation == Isolation(level="namespaced", mode="in_process")
