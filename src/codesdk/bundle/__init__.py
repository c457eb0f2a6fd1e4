"""Support bundles: everything that explains one session, in one archive without secrets.

`write_bundle` makes one from a stored session; `read_bundle` checks one from anybody and says what is in it.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.bundle.box import BundledFile as BundledFile, LeftOut as LeftOut, Manifest as Manifest
    from codesdk.bundle.machine import process_facts as process_facts
    from codesdk.bundle.show import OpenedBundle as OpenedBundle, read_bundle as read_bundle
    from codesdk.bundle.write import MAX_BYTES as MAX_BYTES, Origin as Origin, write_bundle as write_bundle

__getattr__, __dir__ = open_door(__name__, __file__)
