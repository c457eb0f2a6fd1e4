"""The library's handles over HTTP: `CodeSDKClient` for asyncio, `SyncClient` for plain scripts. See docs/client.md."""

from codesdk.client.connection import Unreachable
from codesdk.client.handles import RemoteSession, RemoteTask
from codesdk.client.remote import CodeSDKClient
from codesdk.client.sync import SyncClient, SyncSession, SyncTask

__all__ = [
    "CodeSDKClient",
    "RemoteSession",
    "RemoteTask",
    "SyncClient",
    "SyncSession",
    "SyncTask",
    "Unreachable",
]
