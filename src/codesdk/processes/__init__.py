"""Children of this process: started with an environment of their own, supervised, and ended with all that they started."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.processes.child import (
        SEARCH_PATH as SEARCH_PATH,
        Child as Child,
        exit_of as exit_of,
        has_namespaces as has_namespaces,
        readable as readable,
        start_child as start_child,
    )
    from codesdk.processes.guard import GUARD_NAME as GUARD_NAME, Guard as Guard, own_guard as own_guard

__getattr__, __dir__ = open_door(__name__, __file__)
