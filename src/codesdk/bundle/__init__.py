"""Support bundles: everything that explains one session, in one archive without secrets.

`write_bundle` makes one from a stored session; `read_bundle` checks one from anybody and says what is in it.
"""

from codesdk.bundle.box import BundledFile, LeftOut, Manifest
from codesdk.bundle.machine import process_facts
from codesdk.bundle.show import OpenedBundle, read_bundle
from codesdk.bundle.write import MAX_BYTES, Origin, write_bundle

__all__ = [
    "MAX_BYTES",
    "BundledFile",
    "LeftOut",
    "Manifest",
    "OpenedBundle",
    "Origin",
    "process_facts",
    "read_bundle",
    "write_bundle",
]
