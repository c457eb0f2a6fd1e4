"""Certificates are read once for all models, beside the event loop, and not at all for an address that has none."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.minicode.models.wire import ALL, read_pixel

from codesdk import tls
from codesdk.minicode.models import ModelSettings, open_model
from codesdk.minicode.types import ProviderId

pytestmark = pytest.mark.slow
_READING = ("load_verify_locations", "load_default_certs", "set_default_verify_paths")


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The threads that have read certificates, once for each time."""
    found: list[str] = []

    def noting(name: str) -> Any:
        real = getattr(ssl.SSLContext, name)

        def read(self: ssl.SSLContext, *args: Any, **given: Any) -> Any:
            found.append(threading.current_thread().name)
            return real(self, *args, **given)

        return read

    for name in _READING:
        monkeypatch.setattr(ssl.SSLContext, name, noting(name))
    tls._made.cache_clear()
    yield found
    tls._made.cache_clear()


async def opened(provider: ProviderId, url: str) -> None:
    settings = ModelSettings(provider=provider, model="m", key="k", base_url=url, direct=True)
    model = await open_model(settings, read_pixel)
    await model.aclose()


async def test_certificates_are_read_once_for_all_models_and_beside_the_event_loop(readers: list[str]):
    await asyncio.gather(*(opened(provider, "https://models.example.com/v1") for provider in (*ALL, *ALL)))
    assert len(readers) == 1
    assert readers != [threading.main_thread().name]


async def test_an_address_without_tls_needs_no_certificates(readers: list[str]):
    for provider in ALL:
        await opened(provider, "http://127.0.0.1:9/v1")
    assert readers == []


def test_what_needs_no_certificates_trusts_nobody():
    context = tls.trusting_nobody()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] == 0
