"""The library's handles over HTTP: `CodeSDKClient` for asyncio, `SyncClient` for plain scripts."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.client.connection import Unreachable as Unreachable
    from codesdk.client.remote import CodeSDKClient as CodeSDKClient
    from codesdk.client.service import HttpService as HttpService
    from codesdk.client.sync import SyncClient as SyncClient, SyncSession as SyncSession, SyncTask as SyncTask

__getattr__, __dir__ = open_door(__name__, __file__)
