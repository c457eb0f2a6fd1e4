"""Removes secrets from text, JSON values and bytes: known values, and anything shaped like a key."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.redaction.bounds import check_secrets as check_secrets
    from codesdk.redaction.patterns import MARKER as MARKER
    from codesdk.redaction.redactor import Redactor as Redactor, StreamRedactor as StreamRedactor

__getattr__, __dir__ = open_door(__name__, __file__)
