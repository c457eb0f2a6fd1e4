"""codesdkd: the engine over HTTP.

`operations` is the table of what it does, `app` turns requests into calls of them, `server` runs the process.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.daemon.operations.audit import AuditPage as AuditPage
    from codesdk.daemon.server import serve as serve
    from codesdk.daemon.settings import DaemonSettings as DaemonSettings
    from codesdk.daemon.sockets import Entrance as Entrance, Upgrade as Upgrade

__getattr__, __dir__ = open_door(__name__, __file__)
