"""Providers of accounts, behind their own names: they know who is logged in, renew tokens once each, and answer models."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
import pytest
from tests.runtimes.logins import google
from tests.runtimes.logins.names import make_certificates, names

from codesdk import tls
from codesdk.contract.models import Tokens
from codesdk.gateway.wires.exchange import Finish, Part, TextChunk
from codesdk.gateway.wires.formats import find_route

HOSTS = ("chatgpt.com", "auth.openai.com", "api.anthropic.com", "platform.claude.com", *google.HOSTS)
Renewing = Literal["rotates", "invalid_grant", "hangs", "down"]


class Asked(msgspec.Struct, frozen=True):
    """A request that arrived."""

    host: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def route(self) -> str:
        return f"{self.method} {self.host}{self.path.partition('?')[0]}"


class Accounts:
    """All providers in one: an account with one good access token and one good refresh token at a time."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        """The names that somebody looked up."""
        self.asked: list[Asked] = []
        self.renewing: Renewing = "rotates"
        self.number = 1
        self.accepts = True
        """Whether the account's access token is good."""
        self.released = asyncio.Event()
        """Renewals wait for it."""
        self.released.set()
        self.codes: list[str] = []
        """The codes that were exchanged for a new login."""
        self.allows_devices = self.confirmed = True
        """Whether there are codes for devices, and whether the person has typed one in."""
        self.takes_codes = True
        """Whether a code is exchanged for a login."""
        self.lifetime_s = 3599
        """How long a token of Google's is good."""
        self.says: list[list[Part]] = []
        """What the model of Google answers next, before it says hello."""

    @property
    def access(self) -> str:
        return jwt(f"access-{self.number:04}")

    @property
    def refresh(self) -> str:
        return f"rt-canary-of-the-account-{self.number:04}"

    @property
    def lasting(self) -> str:
        """What Google renews a login by: it stays the same, and every token that was made with it stays good."""
        return "rt-canary-of-the-account-0000"

    @property
    def identity(self) -> str:
        return jwt(f"identity-{self.number:04}")

    def routes(self, *parts: str) -> list[str]:
        """Return what arrived, of those routes that have one of these parts."""
        return [one.route for one in self.asked if not parts or any(part in one.route for part in parts)]

    def write_codex(self, folder: Path, *, expired: bool = False) -> None:
        """Write the login that codex would have made."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.accepts = not expired
        access = jwt(f"access-{self.number:04}", expires=1) if expired else self.access
        tokens = {"id_token": self.identity, "access_token": access, "refresh_token": self.refresh}
        login = {
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": None,
            "tokens": tokens | {"account_id": "account-1"},
        }
        when = "2020-01-01T00:00:00Z" if expired else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        _write(folder / "auth.json", login | {"last_refresh": when})

    def write_claude(self, folder: Path, *, expired: bool = False) -> None:
        """Write the login that claude would have made."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        login = {
            "accessToken": self.access,
            "refreshToken": self.refresh,
            "expiresAt": 1000 if expired else 4_000_000_000_000,
            "scopes": ["user:inference", "user:profile"],
            "subscriptionType": "max",
        }
        _write(folder / ".credentials.json", {"claudeAiOauth": login})

    def write_gemini(self, folder: Path, *, expired: bool = False, lasting: bool = True) -> None:
        """Write the login that gemini would have made; if it is not lasting, without what renews it."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        login = {
            "access_token": self.access,
            "scope": "https://www.googleapis.com/auth/cloud-platform",
            "token_type": "Bearer",
            "id_token": self.identity,
            "expiry_date": 1000 if expired else 4_000_000_000_000,
        }
        _write(folder / "oauth_creds.json", login | ({"refresh_token": self.lasting} if lasting else {}))

    async def answer(self, asked: Asked) -> tuple[int, str, bytes]:
        """Return status, type and body of an answer."""
        if asked.host in google.HOSTS and asked.route != "POST oauth2.googleapis.com/token":
            return self._google(asked)
        match asked.route:
            case "POST oauth2.googleapis.com/token":
                return await self._token(asked)
            case "POST auth.openai.com/oauth/token" | "POST platform.claude.com/v1/oauth/token":
                return await self._token(asked)
            case "POST auth.openai.com/api/accounts/deviceauth/usercode" if not self.allows_devices:
                return _json({"error": "not enabled"}, 404)
            case "POST auth.openai.com/api/accounts/deviceauth/token" if not self.confirmed:
                return _json({"error": "pending"}, 403)
            case "POST auth.openai.com/api/accounts/deviceauth/usercode":
                return _json({"device_auth_id": "d-1", "user_code": "ABCD-12345", "interval": "0"})
            case "POST auth.openai.com/api/accounts/deviceauth/token":
                return _json({"authorization_code": "code-1", "code_challenge": "c", "code_verifier": "v"})
            case "POST chatgpt.com/backend-api/codex/responses" | "POST api.anthropic.com/v1/messages":
                return self._model(asked)
            case "GET chatgpt.com/backend-api/wham/accounts/check":
                return _json({"accounts": [], "account_ordering": []})
            case "GET api.anthropic.com/api/oauth/profile":
                return _json(
                    {
                        "account": {"uuid": "u-1", "email": "canary-person@example.org"},
                        "organization": {"uuid": "o-1"},
                    }
                )
            case _:
                return _json({}, 404)

    def _google(self, asked: Asked) -> tuple[int, str, bytes]:
        given = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if not self.accepts or given not in [jwt(f"access-{n:04}") for n in range(1, self.number + 1)]:
            if asked.route == google.TOKENINFO:
                return _json({"error": "invalid_token", "error_description": "Invalid Value"}, 400)
            return _json({"error": {"code": 401, "message": "Not valid.", "status": "UNAUTHENTICATED"}}, 401)
        if asked.route == google.MODEL:
            said = self.says.pop(0) if self.says else google.HELLO
            return google.answer_model(asked.body, said, len(self.asked))
        told = google.answer_other(asked.route)
        return _json({}, 404) if told is None else _json(told)

    def _model(self, asked: Asked) -> tuple[int, str, bytes]:
        if not self.accepts or asked.headers.get("authorization") != f"Bearer {self.access}":
            return _json(
                {"error": {"message": "The login is not valid.", "type": "authentication_error"}}, 401
            )
        path = asked.path.partition("?")[0].removeprefix("/backend-api/codex")
        found = find_route("POST", path, "")
        assert found is not None
        codec, route = found
        encoder = codec.encoder(codec.parse(route, json.loads(asked.body)), f"answer_{len(self.asked)}")
        said = encoder.start() + encoder.feed(TextChunk(text="Hello from the account."))
        end = encoder.feed(Finish(stop_reason="end_turn", tokens=Tokens(input=11, output=7)))
        return 200, "text/event-stream", said + end

    async def _token(self, asked: Asked) -> tuple[int, str, bytes]:
        try:
            form = json.loads(asked.body)
        except ValueError:
            form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        if form["grant_type"] == "authorization_code":
            self.codes.append(form["code"])
            if not self.takes_codes:
                return _json({"error": "invalid_grant", "error_description": "Malformed auth code."}, 400)
            return self._new(asked)
        if self.renewing == "hangs":
            await asyncio.Event().wait()
        if self.renewing == "down":
            return _json({"error": "unavailable"}, 503)
        await self.released.wait()
        good = self.lasting if asked.host in google.HOSTS else self.refresh
        if self.renewing == "invalid_grant" or form["refresh_token"] != good:
            used = {
                "message": "The refresh token was already used.",
                "type": "invalid_request_error",
                "code": "refresh_token_reused",
            }
            body = {"error": used} if "openai" in asked.host else {"error": "invalid_grant"}
            return _json(body, 401 if "openai" in asked.host else 400)
        self.number += 1
        return self._new(asked)

    def _new(self, asked: Asked) -> tuple[int, str, bytes]:
        self.accepts = True
        new: dict[str, Any] = {
            "access_token": self.access,
            "refresh_token": self.refresh,
            "token_type": "Bearer",
        }
        if "openai" in asked.host:
            return _json(new | {"id_token": self.identity})
        if asked.host in google.HOSTS:
            first = {"refresh_token": self.lasting} if b"authorization_code" in asked.body else {}
            del new["refresh_token"]
            return _json(
                new | first | {"expires_in": self.lifetime_s, "id_token": self.identity, "scope": "s"}
            )
        return _json(new | {"expires_in": 3600, "scope": "user:inference user:profile"})


@asynccontextmanager
async def accounts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Accounts]:
    """Serve all providers under their own names, with certificates that this process and its programs trust."""
    root, context = make_certificates(folder, *HOSTS)
    for variable in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.setenv(variable, str(root))
    tls._made.cache_clear()
    async with names(*HOSTS) as looked_up:
        world = Accounts(looked_up)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                asked = await _read(reader)
                world.asked.append(asked)
                status, kind, body = await world.answer(asked)
                lines = [f"HTTP/1.1 {status} Status", f"content-type: {kind}", f"content-length: {len(body)}"]
                writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode() + body)
                await writer.drain()
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # it hung until the end, as it was told to
            finally:
                writer.close()

        served = await asyncio.start_server(serve, "127.0.0.1", 443, ssl=context, limit=1 << 22)
        try:
            yield world
        finally:
            served.close()
            tls._made.cache_clear()


def jwt(name: str, *, expires: int = 4_000_000_000) -> str:
    """Return a token that looks as one of the provider's. Nobody checks the signature."""
    claims = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "account-1", "chatgpt_user_id": "user-1"}
    body = {
        "exp": expires,
        "email": "canary-person@example.org",
        "sub": name,
        "https://api.openai.com/auth": claims,
    }
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, body))
    return ".".join(
        [*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), f"canary-{name}"]
    )


def holds_token(data: bytes) -> bool:
    """Return whether there is any token in it that an account ever had, as it is or encoded."""
    return any(mark in data for mark in _MARKS)


def _forms(mark: str) -> list[bytes]:
    text = mark.encode()
    # In base64 a text looks different at each of three places; what is cut off depends on its neighbours.
    encoded = [base64.b64encode(b"\0" * shift + text)[4:-4] for shift in range(3)]
    return [text, mark.encode("utf-16-le"), *encoded]


_MARKS = [
    form
    for mark in ("canary-access-0", "canary-identity-0", "rt-canary-of-the-account-0")
    for form in _forms(mark)
]
"""The ends of all tokens."""


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(headers.get("host", ""), method, path, headers, body)


def _json(value: Any, status: int = 200) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(value).encode()


def _write(path: Path, value: Any) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps(value))
