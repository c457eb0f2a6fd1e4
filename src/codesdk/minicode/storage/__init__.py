"""Where minicode keeps things: sessions and full outputs, as files."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.minicode.storage.artifacts import FsArtifactStore as FsArtifactStore
    from codesdk.minicode.storage.sessions import (
        DamagedSession as DamagedSession,
        FsSessionRepository as FsSessionRepository,
        UnusableSession as UnusableSession,
        check_session_id as check_session_id,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
