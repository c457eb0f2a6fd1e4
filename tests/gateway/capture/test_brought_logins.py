"""The login that a model request brings: a secret of its exchange, and of the session only where it is worth something."""

from collections.abc import Sequence
from typing import Any

from codesdk.gateway.capture.observe import MAX_LOGINS, ObservedBackend
from codesdk.gateway.reply import RawRequest

HIDDEN = "delete-everything-now"


class Tap:
    """Notes what a session learns."""

    def __init__(self) -> None:
        self.secrets: Sequence[str] = ("key-of-the-operator",)
        self.brought: list[str] = []

    def learn_login(self, secrets: Sequence[str]) -> None:
        self.brought += secrets
        self.secrets = (*self.secrets, *secrets)


def asking(words: str) -> RawRequest:
    return RawRequest(
        method="POST", path="/v1/messages", query="", headers=[("Authorization", words)], body=b"{}"
    )


def test_the_login_that_a_request_brings_is_a_secret_of_the_session():
    tap: Any = Tap()
    backend: Any = ObservedBackend(None, tap, dict)  # pyright: ignore[reportArgumentType]
    redactor = backend._redactor_for(asking(f"Bearer {HIDDEN}"))
    assert redactor.text(f"I {HIDDEN} key-of-the-operator") == "I [redacted] [redacted]"
    assert tap.brought == [HIDDEN]
    assert backend._redactor_for(asking("none")).text(HIDDEN) == "[redacted]"


def test_the_words_of_one_request_are_bounded():
    tap: Any = Tap()
    backend: Any = ObservedBackend(None, tap, dict)  # pyright: ignore[reportArgumentType]
    redactor = backend._redactor_for(asking(" ".join(f"some-long-word-{n}" for n in range(1_000))))
    assert len(redactor.secrets) == 1 + MAX_LOGINS
