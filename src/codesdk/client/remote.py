"""`CodeSDKClient`: the library's handles, with a daemon behind them.

async with CodeSDKClient.connect("http://127.0.0.1:8000") as client:
    session = await client.create_session(workspace=".")
    task = await session.start("Summarize this repo")
    print((await task.result()).text)
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import quote

import msgspec

from codesdk.client.address import finder
from codesdk.client.connection import DaemonConnection
from codesdk.client.service import HttpService
from codesdk.contract import api
from codesdk.contract.access import ProviderName
from codesdk.contract.arguments import check_arguments, path_text
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import CONTRACT_VERSION
from codesdk.contract.retention import GcReport, Retention
from codesdk.contract.validation import read_as
from codesdk.handles import Handles


class CodeSDKClient(Handles):
    """A daemon's sessions, as its caller may use them. Get it from `CodeSDKClient.connect`."""

    def __init__(self, connection: DaemonConnection) -> None:
        self.daemon = HttpService(connection)
        """The daemon itself, for what the handles do not cover."""
        super().__init__(self.daemon)
        self.connection = connection

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str | None = None,
        token: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> AsyncGenerator["CodeSDKClient"]:
        """Connect to a daemon: at `url`, at the one that serves `data_dir`, or at CODESDK_URL.

        The token is the given one, that of CODESDK_TOKEN or, for a daemon of this machine, the one in the lock file
        of its data directory. Leaving the block ends streams; tasks in the daemon keep running.
        """
        check_arguments(url=url, token=token)
        if data_dir is not None:
            path_text(data_dir, "data_dir")
        client = cls(DaemonConnection(finder(url, token, data_dir)))
        try:
            await client._greet()
            yield client
        finally:
            await client.connection.close()

    async def _greet(self) -> None:
        """Fail at once, with a clear error, if no daemon answers or it speaks another version."""
        health = await self.connection.get("/v1/health", api.Health, patience_s=0.0)
        if health.contract_version != CONTRACT_VERSION:
            raise InvalidRequest(
                f"The daemon at {self.connection.url} speaks version {health.contract_version} of the contract and"
                f" this client version {CONTRACT_VERSION}: use the same release of CodeSDK on both sides."
            )

    async def runtimes(self) -> list[api.RuntimeInfo]:
        """Return the runtimes that sessions can be created with."""
        return (await self.connection.get("/v1/runtimes", api.RuntimePage)).runtimes

    async def runtime_auth(self, name: str) -> api.RuntimeAuth:
        """Ask whether a task on a runtime could begin on the daemon's machine: program, key or login."""
        check_arguments(runtime=name)
        return await self.connection.get(f"/v1/runtimes/{quote(name, safe='')}/auth", api.RuntimeAuth)

    async def begin_login(self, name: str, *, credential_namespace: str | None = None) -> api.LoginState:
        """Start a login to a runtime's own account. Return what the person has to do."""
        check_arguments(runtime=name)
        body = {"credential_namespace": credential_namespace}
        return await self.connection.post(f"/v1/runtimes/{quote(name, safe='')}/login", body, api.LoginState)

    async def read_login(self, login_id: str, *, wait_s: float = 0.0) -> api.LoginState:
        """Return where a login stands, as soon as that changes, at most after `wait_s`."""
        check_arguments(login_id=login_id, wait_s=wait_s)
        path = f"/v1/logins/{quote(login_id, safe='')}"
        return await self.connection.get(path, api.LoginState, wait_s=wait_s)

    async def answer_login(self, login_id: str, text: str) -> api.LoginState:
        """Answer what a login asks for."""
        check_arguments(login_id=login_id)
        path = f"/v1/logins/{quote(login_id, safe='')}/answer"
        return await self.connection.post(path, {"text": text}, api.LoginState)

    async def cancel_login(self, login_id: str) -> None:
        """Cancel a login."""
        check_arguments(login_id=login_id)
        await self.connection.delete(f"/v1/logins/{quote(login_id, safe='')}")

    async def extensions(self) -> api.ExtensionPage:
        """Return the daemon's extensions: loaded, or rejected and why. Needs the scope admin."""
        return await self.connection.get("/v1/extensions", api.ExtensionPage)

    async def reload_extensions(self) -> api.ExtensionPage:
        """Load the daemon's extensions again. If one that runs could not be, all stay. Needs the scope admin."""
        return await self.connection.post("/v1/extensions/reload", {}, api.ExtensionPage)

    async def keys(self, principal: str | None = None) -> list[api.KeyInfo]:
        """Return which provider keys are stored. Those of another principal need the scope admin."""
        return (await self.connection.get("/v1/keys", api.KeyPage, principal=principal)).keys

    async def add_key(self, provider: ProviderName, key: str, *, principal: str | None = None) -> api.KeyInfo:
        """Store a provider key. It pays for the principal's sessions, and nothing shows it again."""
        body = {"provider": provider, "key": key, "principal": principal}
        return await self.connection.post("/v1/keys", body, api.KeyInfo)

    async def remove_key(self, provider: ProviderName, *, principal: str | None = None) -> None:
        """Remove a stored provider key."""
        await self.connection.delete(f"/v1/keys/{quote(provider, safe='')}", principal=principal)

    async def whoami(self) -> api.TokenInfo:
        """Return who this client is to the daemon, and what it may do."""
        return await self.connection.get("/v1/whoami", api.TokenInfo)

    async def collect(self, retention: Retention, *, dry_run: bool = False) -> GcReport:
        """Have the daemon remove what is over the limits, of all principals. Needs the scope admin."""
        limits = msgspec.structs.asdict(read_as(Retention, retention, "retention"))
        return await self.connection.post("/v1/gc", api.Collecting(**limits, dry_run=dry_run), GcReport)

    async def usage(self) -> api.UsageAnswer:
        """Return what all sessions have spent."""
        return await self.connection.get("/v1/usage", api.UsageAnswer)
