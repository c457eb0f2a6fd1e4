"""`codesdk bundle`: a session → an archive for whoever helps with it; and such an archive → what happened."""

import asyncio
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument
from codesdk.cli.target.lookup import find_session, short
from codesdk.cli.target.place import connected, reading, runner, served
from codesdk.cli.view.out import write_bytes, write_json, write_line, write_mark
from codesdk.cli.view.safe import printable
from codesdk.contract.errors import CodeSDKError, InvalidRequest

if TYPE_CHECKING:
    from codesdk.bundle import Manifest, OpenedBundle

_SIZE = re.compile(r"(\d+)\s*([kmg]?)(i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_GREETING_S = 15.0
_SHOWN = 10
_WIDTH = 400


@click.command()
@session_argument(required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write it; - for stdout. [default: codesdk-bundle-*.tar.gz]",
)
@click.option(
    "--max-size", metavar="SIZE", default="64M", help="The limit for all its files together. [default: 64M]"
)
@click.option("--show", metavar="FILE", help="Inspect a bundle instead: check it and show what happened.")
@json_option("Print what is in it as JSON.")
@click.pass_obj
def bundle(
    setup: Setup, session: str | None, output: str | None, max_size: str, show: str | None, as_json: bool
) -> int:
    """Pack everything that explains a session into a tar.gz that can be passed on, without secrets.

    A manifest lists its files. With --show nothing is unpacked; exits 1 if the bundle is not complete.
    """
    if (show is None) == (session is None):
        raise click.UsageError("Name a session, or a bundle with --show.")
    if show is not None:
        return _show(Path(show), as_json)
    assert session is not None
    return run_async(_write(setup, session, output, _bytes(max_size), as_json))


async def _write(setup: Setup, given: str, output: str | None, max_bytes: int, as_json: bool) -> int:
    from codesdk.bundle import read_bundle

    with tempfile.TemporaryFile() as file:
        spool = cast("BinaryIO", file)
        fill = _fetch if setup.url is not None else _ask_or_pack
        session_id = await fill(setup, given, max_bytes, spool)
        size = spool.seek(0, os.SEEK_END)
        spool.seek(0)
        if output == "-":
            while chunk := spool.read(1024 * 1024):
                write_bytes(chunk)
            return OK
        target = Path(output or f"codesdk-bundle-{short(session_id)}.tar.gz")
        _save(spool, target)
    # Read back: a daemon sends only the archive, and it is checked like any other bundle.
    manifest = read_bundle(target).manifest
    if as_json:
        write_json({"file": str(target), "size": size, "manifest": manifest})
    else:
        write_line(f"{target}: {size:,} bytes, {len(manifest.files):,} files, {manifest.last_seq:,} events")
        _tell_left_out(manifest)
        write_line(f"\n  codesdk bundle --show {target}")
    return OK


async def _ask_or_pack(setup: Setup, given: str, max_bytes: int, spool: BinaryIO) -> str:
    """Get a bundle from the daemon that holds the data directory; else write one from what is stored."""
    if not served(setup):
        return await _pack(setup, given, max_bytes, spool)
    async with reading(setup.data_dir) as archive:
        session_id = (await find_session(archive, given)).session_id
    try:
        async with asyncio.timeout(_GREETING_S), connected(setup):
            pass  # it answers; packing may then take as long as it takes
        return await _fetch(setup, session_id, max_bytes, spool)
    except (CodeSDKError, TimeoutError):
        # A bundle is wanted most when something is wrong, and that may be the daemon. What is stored can be read anyway.
        return await _pack(setup, session_id, max_bytes, spool)


async def _pack(setup: Setup, given: str, max_bytes: int, spool: BinaryIO) -> str:
    """Write a bundle from the data directory, with what its holder says of itself. Return the session's id."""
    from codesdk.bundle import Origin, write_bundle
    from codesdk.contract.actions import Caller
    from codesdk.engine import unseal
    from codesdk.gateway import providers_from
    from codesdk.local import DataDir, HolderService, KeyFile, equipment_in
    from codesdk.redaction import Redactor

    keys = {provider.key for provider in providers_from().values() if provider.key}
    keys |= set(KeyFile(Path(setup.data_dir)).secrets())
    directory = await DataDir.open_reader(Path(setup.data_dir))
    try:
        stored = HolderService(directory, Caller())
        row = await find_session(stored, given)
        equipment = await unseal(equipment_in(directory.path), row.session_id)
        running = await runner(setup) != "nobody"
        origin = Origin(
            archive=stored,
            redactor=Redactor([*sorted(keys), *equipment.secrets]),
            data_dir=directory.path,
            running=running,
            process=await stored.describe(row.session_id) if running else None,
        )
        await write_bundle(spool, origin, row.session_id, max_bytes=max_bytes)
        return row.session_id
    finally:
        await directory.close()


async def _fetch(setup: Setup, given: str, max_bytes: int, spool: BinaryIO) -> str:
    """Get a bundle from a daemon. Return the session's id."""
    async with connected(setup) as client:
        row = await find_session(client.daemon, given)
        path = f"/v1/sessions/{row.session_id}/support-bundle?max_bytes={max_bytes}"
        spool.write(await client.connection.download(path, {}))
        return row.session_id


def _save(spool: BinaryIO, target: Path) -> None:
    """Write a file for its owner only, whole or not at all."""
    # Beside the target, so that the rename stays within one file system.
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            while chunk := spool.read(1024 * 1024):
                file.write(chunk)
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InvalidRequest(f"Cannot write {target}: {error.strerror}.") from error


def _show(path: Path, as_json: bool) -> int:
    from codesdk.bundle import read_bundle

    opened = read_bundle(path)
    if as_json:
        write_json(opened)
    else:
        _explain(path, opened)
    return FAILED if opened.problems else OK


def _explain(path: Path, opened: "OpenedBundle") -> None:
    manifest, summary = opened.manifest, opened.summary
    row: dict[str, Any] = _mapping(summary.get("session"))
    _say(f"{path}: session {manifest.session_id}, {manifest.last_seq:,} events, made {manifest.created_at}")
    _say(
        f"  codesdk {manifest.codesdk_version} · {row.get('runtime')} · {row.get('model') or 'no model named'} · {row.get('title') or 'no title'}"
    )
    tasks = _list(summary.get("tasks"))
    write_line(f"\nTasks: {len(tasks)}, tool calls: {summary.get('tool_calls', 0)}")
    for task in tasks[-_SHOWN:]:
        error = _mapping(task.get("error"))
        why = f": {error.get('code')}: {error.get('message')}" if error else ""
        _say(f"  {task.get('started_at')}  {task.get('state')}  {task.get('duration_ms', '?')} ms{why}")
    errors = _list(summary.get("errors"))
    write_line(f"\nErrors: {len(errors)}")
    for error in errors[-_SHOWN:]:
        _say(f"  seq {error.get('seq')}  {error.get('kind')}: {error.get('message')}")
    write_line("\nFiles:")
    plain = [file for file in manifest.files if file.path.count("/") == 0]
    for file in plain:
        _say(f"  {file.size:>12,}  {file.path:20}  {file.what}")
    for folder in ("events", "tools", "artifacts"):
        sizes = [file.size for file in manifest.files if file.path.startswith(f"{folder}/")]
        write_line(f"  {sum(sizes):>12,}  {folder + '/':20}  {len(sizes):,} files")
    _tell_left_out(manifest)
    write_line("")
    for problem in opened.problems[:_SHOWN]:
        write_mark(False, _safe(problem))
    if not opened.problems:
        write_mark(True, f"whole: {len(manifest.files):,} files match the manifest")


def _tell_left_out(manifest: "Manifest") -> None:
    if not manifest.left_out:
        return
    write_line(f"\nLeft out: {len(manifest.left_out):,}")
    for left in manifest.left_out[:_SHOWN]:
        size = "" if left.size is None else f" ({left.size:,} bytes)"
        _say(f"  {left.what}{size}: {left.why}")


def _bytes(given: str) -> int:
    match = _SIZE.fullmatch(given.strip())
    if match is None:
        raise click.UsageError(f"--max-size {given!r} is not a size. Give one such as 500K, 64M or 1G.")
    return int(match[1]) * _UNITS[match[2].lower()]


def _say(text: str) -> None:
    write_line(_safe(text))


def _safe(text: str) -> str:
    """Return a text that may come from somebody else as one short line."""
    return printable(text).replace("\n", " ")[:_WIDTH]


def _list(value: Any) -> list[dict[str, Any]]:
    return [_mapping(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
