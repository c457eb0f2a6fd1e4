"""Support bundles: everything that explains one session, in one archive without secrets, written and looked into again.

`write_bundle` is used by `codesdk bundle` and by the daemon; `read_bundle` by whoever gets one.
"""

from codesdk.bundle.manifest import BundledFile, LeftOut, Manifest
from codesdk.bundle.show import OpenedBundle, read_bundle
from codesdk.bundle.write import MAX_BYTES, Origin, write_bundle

__all__ = [
    "MAX_BYTES",
    "BundledFile",
    "LeftOut",
    "Manifest",
    "OpenedBundle",
    "Origin",
    "read_bundle",
    "write_bundle",
]
