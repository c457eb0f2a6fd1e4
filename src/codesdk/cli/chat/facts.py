"""What the status line says: a session's events → runtime, model, mode, context, cost, what it is busy with. Pure."""

from msgspec import UNSET

from codesdk.cli.view.gist import money, plural
from codesdk.cli.view.safe import one_line
from codesdk.contract import events as ev
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.records import SessionRow
from codesdk.contract.tools import ManifestEntry


class Facts:
    """How things are in the session, as far as was seen."""

    def __init__(self, runtime: str, model: str | None, mode: str) -> None:
        self.runtime: str = runtime
        self.model: str | None = model
        self.mode: str = mode
        self.title: str | None = None
        self.task_id: str | None = None
        self.stopping = False
        self.doing = ""
        self.cost_usd: float | None = None
        self.tokens = 0
        self.requests = 0
        self.queued: set[str] = set()
        """The tasks that wait."""
        self.tools: list[ManifestEntry] = []
        """What the model was offered last."""
        self.changing: list[str] = []
        """The calls that changed files, the newest last."""
        self._context = (0, 0)

    def read(self, row: SessionRow) -> None:
        """Take over what a session's row says."""
        self.runtime, self.mode, self.title = row.runtime, row.permission_mode, row.title
        self.model = row.model or self.model
        if row.spent is not None:
            self.cost_usd, self.tokens, self.requests = (
                row.spent.cost_usd,
                row.spent.tokens,
                row.spent.requests,
            )

    def take(self, event: Event) -> None:
        """Follow an event."""
        if event.runtime.model:
            self.model = event.runtime.model
        if event.type in TERMINAL_TYPES:
            if self.task_id == event.trace.task_id:
                self.task_id, self.stopping, self.doing = None, False, ""
            self.queued.discard(event.trace.task_id or "")
            return
        self._follow_work(event)
        self._follow_settings(event)

    def _follow_work(self, event: Event) -> None:
        match event.payload:
            case ev.TaskStarted():
                self.task_id, self.stopping, self.doing = event.trace.task_id, False, "working"
                self.queued.discard(event.trace.task_id or "")
            case ev.TaskQueued() as p:
                self.queued.add(p.task_id)
            case ev.TaskStopRequested():
                self.stopping = True
            case ev.ToolCallStarted() as p:
                self.doing = f"{one_line(p.name, 40)} runs"
            case ev.ToolCallCompleted() as p:
                self.doing = "working"
                if p.changes:
                    self.changing.append(p.tool_call_id)
            case ev.FilesUndone() as p:
                undone = {file.tool_call_id for file in p.restored}
                self.changing = [call for call in self.changing if call not in undone]
            case _:
                pass

    def _follow_settings(self, event: Event) -> None:
        match event.payload:
            case ev.SettingsChanged() as p:
                self.mode = self.mode if p.permission_mode is UNSET else p.permission_mode
                self.model = self.model if p.model is UNSET else p.model
                self.title = self.title if p.title is UNSET else p.title
            case ev.SessionResumed() as p:
                if p.runtime != self.runtime:
                    self.runtime, self.model = p.runtime, None
            case ev.SessionCreated() as p:
                self.runtime, self.model, self.mode = p.runtime, p.model, p.permission_mode
            case ev.ModelInput() as p:
                self.tools = p.tool_manifest
                window = p.context_window
                self._context = (
                    window.estimated_tokens + (window.overhead_tokens or 0),
                    window.budget_tokens,
                )
            case _:
                pass

    def parts(self) -> list[str]:
        """Return the words of the status line, the most important first."""
        used, budget = self._context
        found = [one_line(self.runtime, 40), one_line(self.model or "", 40), self.mode]
        if budget:
            found.append(f"context {100 * used // budget}%")
        if self.cost_usd:
            found.append(money(self.cost_usd))
        if self.queued:
            found.append(f"{plural(len(self.queued), 'message')} queued")
        return [part for part in found if part]
