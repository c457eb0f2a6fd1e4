"""What a task says, as it goes over the wire: the items of the contract, each with a tag that tells its kind.

A draft is its payload with the type of the event; all others are the contract's own structs with a tag, so that the
engine takes them as they are decoded.
"""

from typing import Any

import msgspec

from codesdk.contract.events import (
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    RequestCompleted,
    RequestStarted,
    RuntimeNotice,
    UsageReported,
)
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    RuntimeItem,
    ToolAnnouncement,
    ToolDropped,
    ToolEnded,
)


class _Draft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """An event as the runtime sees it; `raw` is what it was made from."""

    raw: Any = None


class DeltaItem(_Draft, frozen=True, kw_only=True, tag="model.output.delta"):
    """A piece of the model's answer, while it comes."""

    payload: OutputDelta


class RetractedItem(_Draft, frozen=True, kw_only=True, tag="model.output.retracted"):
    """Pieces that do not count: the answer begins again."""

    payload: OutputRetracted


class CompletedItem(_Draft, frozen=True, kw_only=True, tag="model.output.completed"):
    """A whole message of the model."""

    payload: OutputCompleted


class UsageItem(_Draft, frozen=True, kw_only=True, tag="usage.reported"):
    """What the model used, if it is not asked through the gateway."""

    payload: UsageReported


class NoticeItem(_Draft, frozen=True, kw_only=True, tag="runtime.notice"):
    """Something worth knowing. It changes no state."""

    payload: RuntimeNotice


class RequestStartedItem(_Draft, frozen=True, kw_only=True, tag="runtime.request.started"):
    """A model request, if it is not sent through the gateway."""

    payload: RequestStarted


class RequestCompletedItem(_Draft, frozen=True, kw_only=True, tag="runtime.request.completed"):
    """The end of such a request."""

    payload: RequestCompleted


class AnnouncedItem(ToolAnnouncement, frozen=True, kw_only=True, tag_field="type", tag="tool.announced"):
    """A tool call, which the engine decides."""


class DroppedItem(ToolDropped, frozen=True, kw_only=True, tag_field="type", tag="tool.dropped"):
    """An announced call that the runtime will not make after all."""


class EndedItem(ToolEnded, frozen=True, kw_only=True, tag_field="type", tag="tool.ended"):
    """The end of a call that the runtime ran itself."""


class IdentifiedItem(
    Identified, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="identified"
):
    """The runtime's own id of the session, or the model that it chose."""


class FinishedItem(Finished, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="finished"):
    """The last item of a good stream."""


class FailedItem(Failed, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="failed"):
    """The last item of a bad stream."""


DraftItem = (
    DeltaItem
    | RetractedItem
    | CompletedItem
    | UsageItem
    | NoticeItem
    | RequestStartedItem
    | RequestCompletedItem
)
Item = DraftItem | AnnouncedItem | DroppedItem | EndedItem | IdentifiedItem | FinishedItem | FailedItem

_DRAFTS: dict[type, type[Any]] = {
    OutputDelta: DeltaItem,
    OutputRetracted: RetractedItem,
    OutputCompleted: CompletedItem,
    UsageReported: UsageItem,
    RuntimeNotice: NoticeItem,
    RequestStarted: RequestStartedItem,
    RequestCompleted: RequestCompletedItem,
}
_OTHERS: dict[type, type[Any]] = {
    ToolAnnouncement: AnnouncedItem,
    ToolDropped: DroppedItem,
    ToolEnded: EndedItem,
    Identified: IdentifiedItem,
    Finished: FinishedItem,
    Failed: FailedItem,
}


def to_wire(item: RuntimeItem) -> Item:
    """Return an item of a runtime as it goes over the wire."""
    if isinstance(item, Draft):
        return _DRAFTS[type(item.payload)](payload=item.payload, raw=item.raw)
    return _OTHERS[type(item)](**msgspec.structs.asdict(item))


def from_wire(item: Item) -> RuntimeItem:
    """Return an item as the engine takes it. All but drafts are that already."""
    return Draft(item.payload, item.raw) if isinstance(item, _Draft) else item
