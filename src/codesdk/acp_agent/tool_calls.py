"""Tool calls as an editor shows them: kind, title, places in files, and differences. Pure."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolKind,
)

from codesdk.contract.tools import ToolClass

Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

MAX_SHOWN_CHARS = 64 * 1024
"""How much of a text an editor is shown; the log has all of it."""
_TITLE_CHARS = 120
_KINDS: dict[str, ToolKind] = {
    "workspace.read": "read",
    "workspace.list": "search",
    "workspace.glob": "search",
    "workspace.search": "search",
    "workspace.write": "edit",
    "workspace.edit": "edit",
    "workspace.exec": "execute",
    "patch.apply": "edit",
    "http.fetch": "fetch",
}
_KIND_OF_CLASS: dict[ToolClass, ToolKind] = {
    "read_only": "read",
    "write": "edit",
    "network": "fetch",
    "dangerous": "other",
}
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_SUBJECTS = ("path", "pattern", "url", "command", "argv", "question", "query")


def kind_of(name: str, tool_class: ToolClass | None) -> ToolKind:
    """Return what kind of tool it is: by its name where we know it, else by what it may do."""
    if name == "user.ask":
        return "other"
    return _KINDS.get(name) or _KIND_OF_CLASS.get(tool_class or "dangerous", "other")


def title_of(name: str, given: Any) -> str:
    """Return a line that says what a call does."""
    if isinstance(given, dict):
        fields = cast("dict[str, Any]", given)
        for subject in _SUBJECTS:
            value = fields.get(subject)
            if isinstance(value, list):
                value = " ".join(str(part) for part in cast("list[Any]", value))
            if isinstance(value, str) and value:
                return _cut(f"{name} {' '.join(value.split())}", _TITLE_CHARS)
    return _cut(name, _TITLE_CHARS)


def locations_of(workspace: str, paths: list[str]) -> list[ToolCallLocation]:
    """Return places in files, as absolute paths."""
    return [ToolCallLocation(path=str(Path(workspace, path))) for path in paths]


def paths_in(given: Any) -> list[str]:
    """Return the files that a call's input names."""
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    path, patch = fields.get("path"), fields.get("patch")
    if isinstance(patch, str):
        return list(dict.fromkeys(edit.path for edit in edits_in(patch)))
    return [path] if isinstance(path, str) and path else []


def preview(workspace: str, name: str, given: Any) -> list[Content]:
    """Return the change that a call would make, as far as its input says it."""
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    path, patch = fields.get("path"), fields.get("patch")
    if name == "patch.apply" and isinstance(patch, str):
        return differences(workspace, patch)
    old, new = fields.get("old"), fields.get("new", fields.get("content"))
    if name not in ("workspace.edit", "workspace.write") or not isinstance(path, str):
        return []
    if not isinstance(new, str) or len(new) > MAX_SHOWN_CHARS:
        return []
    before = old if isinstance(old, str) else None
    return [_difference(workspace, Edit(path=path, old=before, new=new))]


def differences(workspace: str, patch: str) -> list[Content]:
    """Return the hunks of a unified diff, each as a difference of its file."""
    if len(patch) > MAX_SHOWN_CHARS:
        return [text_content(_cut(patch, MAX_SHOWN_CHARS))]
    return [_difference(workspace, edit) for edit in edits_in(patch)]


def result_content(result: Any) -> list[Content]:
    """Return what a tool answered, as text."""
    if result is None or result == "":
        return []
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    return [text_content(_cut(text, MAX_SHOWN_CHARS))]


def text_content(text: str) -> ContentToolCallContent:
    """Return text as content of a call."""
    return ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=text))


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file before and after. `old` is None for a file that is new."""

    path: str
    old: str | None
    new: str


def edits_in(patch: str) -> list[Edit]:
    """Return the hunks of a unified diff. What is not one has none: this is for people, and nothing is applied."""
    edits: list[Edit] = []
    before = after = ""
    lines = iter(patch.split("\n"))
    for line in lines:
        if line.startswith("--- "):
            before = _name(line)
        elif line.startswith("+++ "):
            after = _name(line)
        elif found := _HUNK.match(line):
            old, new = _hunk(lines, int(found[1] or 1), int(found[2] or 1))
            path = before if after == "/dev/null" else after
            edits.append(Edit(path=path, old=None if before == "/dev/null" else old, new=new))
    return edits


def _hunk(lines: Iterator[str], olds: int, news: int) -> tuple[str, str]:
    """Take as many lines as a hunk says that it has. A line of it may look like the beginning of the next file."""
    old: list[str] = []
    new: list[str] = []
    while len(old) < olds or len(new) < news:
        line = next(lines, None)
        if line is None:
            break
        if line[:1] in ("", " ", "-"):
            old.append(line[1:] + "\n")
        if line[:1] in ("", " ", "+"):
            new.append(line[1:] + "\n")
    return "".join(old), "".join(new)


def _name(line: str) -> str:
    name = line[4:].split("\t")[0].strip().strip('"')
    return name[2:] if name[:2] in ("a/", "b/") else name


def _difference(workspace: str, edit: Edit) -> FileEditToolCallContent:
    path = str(Path(workspace, edit.path))
    return FileEditToolCallContent(type="diff", path=path, old_text=edit.old, new_text=edit.new)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
