"""Sessions at the gateway, each with its own token, source of answers and tap.

`GatewayService` makes one when the first session needs it. What a scripted or replayed session plays is given
apart, because a script is not part of a session's settings.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from codesdk import prices
from codesdk.contract.errors import CodeSDKError, TaskFailure
from codesdk.contract.models import InstructionSources, LoginKind, ModelTap, Payer, StoredInput, Tokens
from codesdk.contract.ownership import DEFAULT_RULES, WireRules
from codesdk.contract.settings import GatewayMode
from codesdk.contract.workspace import Workspace
from codesdk.gateway.capture.observe import ObservedBackend
from codesdk.gateway.capture.source_files import read_sources
from codesdk.gateway.cassettes.cassette import Exchange
from codesdk.gateway.cassettes.record import RecordingBackend
from codesdk.gateway.cassettes.replay import ReplayBackend
from codesdk.gateway.logins import LOGIN_PROVIDERS, LoginRequests, LoginUpstream
from codesdk.gateway.ownership.backend import OwnedBackend
from codesdk.gateway.providers import Accounts, Provider
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Backend, Gateway
from codesdk.gateway.upstream import Upstream
from codesdk.gateway.wires.exchange import Ask, Codec, Wire
from codesdk.redaction import Redactor
from codesdk.script import Script

Source = Script | ScriptedModel | ReplayBackend | Sequence[Exchange]
"""What a session plays instead of a provider: a script or a cassette's exchanges, whether begun or not."""


class SessionGateway:
    """The gateway of an engine. Close it when done."""

    def __init__(self, accounts: Accounts, sources: Mapping[str, Source], server: Gateway) -> None:
        self._accounts = accounts
        self._sources = sources
        self._server = server
        self._models: dict[str, ScriptedModel | ReplayBackend] = {}
        # By session, because whoever closes one does not know its token.
        self._urls: dict[str, str] = {}
        self._upstream: Upstream | None = None
        self._logins: dict[LoginKind, LoginUpstream] = {}
        self._keeping: set[asyncio.Task[None]] = set()
        # The first request waits for the prices, so load them ahead of it.
        self._loading = asyncio.create_task(prices.ready())

    def restart(self, session_id: str) -> None:
        """Let a session play its source from the beginning."""
        self._models.pop(session_id, None)

    def problems(self, session_id: str) -> Sequence[str]:
        """Return the mismatches between a session's requests and its script or cassette."""
        model = self._models.get(session_id)
        return model.problems if model is not None else ()

    def open(
        self,
        session_id: str,
        token: str,
        tap: ModelTap,
        mode: GatewayMode,
        workspace: Workspace,
        sources: InstructionSources,
        payer: Payer,
        login: LoginKind | None = None,
        rules: WireRules = DEFAULT_RULES,
    ) -> str:
        """Serve a session under a token. Return the base URL for its runtime."""
        recorder = _Recorder(tap, self._keeping) if mode == "record" else None
        account = None if login is None else self._login_upstream(login)
        inner = self._answering(session_id, mode, tap, payer) if account is None else account.models
        lacks = inner.lacks if isinstance(inner, Upstream) else None
        if recorder is not None:
            inner = RecordingBackend(inner, recorder.keep, secrets=tap.secrets)
        observed = ObservedBackend(
            inner,
            tap,
            lambda: read_sources(workspace, sources),
            keeps=recorder is not None,
            lacks=lacks,
            price_of=prices.price_of if lacks is None else partial(self._price, payer),
        )
        if recorder is not None:
            recorder.stored = observed.stored
        aside = None if account is None else LoginRequests(account, tap.learn_login)
        url = self._server.admit(OwnedBackend(observed, tap, rules), token, aside)
        self._urls[session_id] = url
        return url

    def close(self, session_id: str) -> None:
        """Revoke a session's URL."""
        url = self._urls.pop(session_id, None)
        if url is not None:
            self._server.dismiss(url)

    async def aclose(self) -> None:
        """Stop the server and close all connections."""
        await self._server.__aexit__()
        if self._keeping:  # exchanges that ended with the server must still reach the log
            await asyncio.wait(self._keeping)
        if self._upstream is not None:
            await self._upstream.close()
        for account in self._logins.values():
            await account.close()
        await asyncio.wait([self._loading])

    def _login_upstream(self, kind: LoginKind) -> LoginUpstream:
        """Return the provider of a kind of login, one for all sessions: those that share a login renew it together."""
        if kind not in self._logins:
            self._logins[kind] = LoginUpstream(LOGIN_PROVIDERS[kind])
        return self._logins[kind]

    def _answering(self, session_id: str, mode: GatewayMode, tap: ModelTap, payer: Payer) -> Backend:
        """Return the backend that answers a session's requests."""
        if mode in ("passthrough", "record"):
            self._upstream = self._upstream or Upstream()
            return self._upstream.with_keys(lambda wire: self._paid(wire, payer, tap))
        self._model_of(session_id, mode, tap)  # fails here, before anyone asks, if there is nothing to play
        return _Played(lambda: self._model_of(session_id, mode, tap))

    def _model_of(self, session_id: str, mode: GatewayMode, tap: ModelTap) -> ScriptedModel | ReplayBackend:
        """Return what a session plays now."""
        begun = self._models.get(session_id)
        if begun is not None:  # the session was closed and opened again; it continues where it was
            return begun
        source = self._sources.get(session_id)
        if mode == "scripted" and isinstance(source, Script | ScriptedModel):
            model = ScriptedModel(source) if isinstance(source, Script) else source
        elif mode == "replay" and source is not None and not isinstance(source, Script | ScriptedModel):
            model = (
                source if isinstance(source, ReplayBackend) else ReplayBackend(source, secrets=tap.secrets)
            )
        else:
            what = "script" if mode == "scripted" else "cassette"
            raise TaskFailure(
                f"The session's model plays a {what}, but none was given. Pass it when you open the session.",
                code="RUNTIME_UNAVAILABLE",
            )
        self._models[session_id] = model
        return model

    def _price(self, payer: Payer, wire: Wire, model: str, tokens: Tokens) -> float | None:
        """Return what a request costs where it goes: a service of the operator's own has prices of its own, or none."""
        provider = self._accounts.provider(payer, wire)
        return prices.price_at(wire, provider.origin if provider.stranger else None, model, tokens)

    def _paid(self, wire: Wire, payer: Payer, tap: ModelTap) -> Provider:
        """Return where a request goes, with its key. The log knows the key as a secret before it is used."""
        provider = self._accounts.provider(payer, wire)
        if provider.key is not None and provider.key not in tap.secrets:
            tap.learn([provider.key])
        return provider


class _Played:
    """Answers from what a session plays when it asks: that may be replaced while its address stays."""

    def __init__(self, model: Callable[[], ScriptedModel | ReplayBackend]) -> None:
        self._model = model

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        """Answer a request for the list of models."""
        return await self._model().list_models(codec, request)

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Answer a model request."""
        return await self._model().answer(codec, ask, request)


async def start_gateway(accounts: Accounts, sources: Mapping[str, Source]) -> SessionGateway:
    """Start the server of a gateway. `sources` is what scripted and replayed sessions play."""
    return SessionGateway(accounts, sources, await Gateway().__aenter__())


class _Recorder:
    """Passes recorded exchanges to a tap, each with a reference to the stored request instead of a copy."""

    def __init__(self, tap: ModelTap, keeping: set[asyncio.Task[None]]) -> None:
        self._tap = tap
        self._keeping = keeping
        self.stored: dict[int, StoredInput] = {}

    def keep(self, exchange: Exchange) -> None:
        """Keep an exchange, if its request was stored."""
        stored = self.stored.pop(exchange.number, None)
        if stored is None and exchange.purpose != "count_tokens":  # not stored, so not replayable
            return
        plain: dict[str, Any] = msgspec.to_builtins(exchange)
        if stored is not None:
            plain |= {"request": {}, "request_ref": stored.own or stored.sent}
        if stored is not None and stored.own is not None:
            plain |= {"sent": {}, "sent_ref": stored.sent}
        task = asyncio.create_task(self._send(msgspec.json.encode(Redactor(self._tap.secrets).value(plain))))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(CodeSDKError):  # the log itself is broken then, and reports that
            await self._tap.keep(data)
