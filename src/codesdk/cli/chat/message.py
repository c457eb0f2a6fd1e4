"""What was typed → a user message, with the files that `@path` attaches.

A file of the workspace is opened through no link: an agent, or whoever made the workspace, could have put one there that leads to
a key, under a harmless name that completion offers. A path elsewhere is what the person wrote out, and followed as it is.
"""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from codesdk.cli.view.gist import size
from codesdk.cli.view.safe import is_text
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, ContentBlock, Message, Text
from codesdk.contract.workspace import Workspace

MAX_FILE_BYTES = 1_000_000
MAX_IMAGE_BYTES = 20_000_000
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}

Upload = Callable[[bytes, str, str], Awaitable[ArtifactRef]]
"""Stores bytes of a type under a name."""


async def message_of(typed: str, root: Path, upload: Upload) -> Message:
    """Return the message for a line. Raise `InvalidRequest` for a file that cannot be attached."""
    text = typed.encode("utf-8", "replace").decode()
    blocks: list[ContentBlock] = [Text(text=text)]
    for path in mentioned(typed, root):
        blocks.append(await _attached(path, root, upload))
    return Message(role="user", content=blocks)


def mentioned(typed: str, root: Path) -> list[Path]:
    """Return the files that a line attaches. An @word that is no file is a word."""
    found: list[Path] = []
    for quoted, plain in _MENTION.findall(typed):
        for name in (quoted or plain, (quoted or plain).rstrip(".,;:!?)")):
            path = root / Path(name).expanduser()
            if path.is_file():
                found.append(path)
                break
    return list(dict.fromkeys(found))


async def _attached(path: Path, root: Path, upload: Upload) -> ContentBlock:
    name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    data = _read(path, name, root)
    length = len(data)
    kind = next((kind for start, kind in _IMAGES.items() if data.startswith(start)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is not None and length <= MAX_IMAGE_BYTES:
        ref = await upload(data, kind, path.name)
        return ArtifactBlock(
            artifact_id=ref.artifact_id,
            content_hash=ref.content_hash,
            content_type=ref.content_type,
            name=ref.name,
        )
    if kind is not None or length > MAX_FILE_BYTES:
        limit = MAX_IMAGE_BYTES if kind else MAX_FILE_BYTES
        raise InvalidRequest(
            f"{name} is too large: at most {size(limit)} can be attached. Name it without the @."
        )
    if not is_text(data):
        raise InvalidRequest(
            f"{name} is neither text nor an image, so no model can be given it. Name it without the @."
        )
    # As text, which every runtime can read.
    return Text(text=f'\n<file path="{name}">\n{data.decode()}\n</file>\n')


def _read(path: Path, name: str, root: Path) -> bytes:
    """Return the bytes of a file; of one outside that is too large, enough to see that it is."""
    from codesdk.sandbox import Beneath, PathRefused, TooLarge

    try:
        if path.is_relative_to(root):
            with Beneath(Workspace(str(root))) as files:
                return files.read(name, MAX_IMAGE_BYTES).data
        with path.open("rb") as file:
            return file.read(MAX_IMAGE_BYTES + 1)
    except TooLarge:
        raise InvalidRequest(
            f"{name} is too large: at most {size(MAX_IMAGE_BYTES)} can be attached. Name it without the @."
        ) from None
    except PathRefused as error:
        raise InvalidRequest(
            f"{name} cannot be attached: {error}. To attach a file from elsewhere, write its whole path."
        ) from None
    except OSError as error:
        raise InvalidRequest(f"{name} cannot be attached: {error.strerror or error}.") from None
