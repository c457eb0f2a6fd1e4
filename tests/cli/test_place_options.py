"""`--data-dir`, `--url` and `--token`: before the command or after it, on every command."""

from collections.abc import Iterator

import click
import pytest
from tests.cli.shell import Shell

from codesdk.cli.app import COMMANDS, HERE_ONLY, Setup, group

URL = "http://127.0.0.1:1"


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, with those below groups."""
    root = click.Context(group)
    for name in [name for entries in COMMANDS.values() for name in entries]:
        found = group.get_command(root, name)
        yield (name,)
        if isinstance(found, click.Group):
            yield from ((name, below) for below in found.commands)


def setup_of(*args: str) -> Setup:
    """Return what a command is given for a command line, without running it."""
    ctx = group.make_context("codesdk", list(args), resilient_parsing=True)
    while isinstance(ctx.command, click.Group):
        name, command, rest = ctx.command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert command is not None
        ctx = command.make_context(name, rest, parent=ctx, resilient_parsing=True)
    return ctx.obj


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_takes_them_after_its_name(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CODESDK_URL", URL)
    monkeypatch.setenv("CODESDK_DATA_DIR", "env")
    command = group.get_command(click.Context(group), words[0])
    if len(words) == 1 and isinstance(command, click.Group):
        return  # what is typed before a subcommand is tried below
    assert setup_of(*words, "--data-dir", "here") == Setup("here", True, " --data-dir here")
    assert setup_of(*words, "--url", URL, "--token", "t") == Setup("env", True, f" --url {URL}", URL, "t")
    assert setup_of(*words) == Setup("env", True, "", URL)


def test_the_later_one_counts_and_a_group_passes_it_on():
    assert (
        setup_of("--data-dir", "a", "tokens", "--data-dir", "b", "add", "ann", "--data-dir", "c").data_dir
        == "c"
    )
    assert setup_of("--data-dir", "a", "tokens", "--data-dir", "b", "add", "ann").data_dir == "b"
    assert setup_of("--data-dir", "a", "tokens", "add", "ann").data_dir == "a"
    assert setup_of("tokens", "add", "ann") == Setup(".codesdk", False, "")


def test_they_work_as_well_after_the_command(shell: Shell):
    assert shell.codesdk("tokens", "add", "ann", "--scope", "read", "--data-dir", "there").code == 0
    assert shell.codesdk("tokens", "--data-dir", "there").out.split()[1] == "ann"
    assert shell.codesdk("--data-dir", "there", "tokens").out.split()[1] == "ann"
    failed = shell.codesdk("sessions", "--url", URL, "--json")
    assert (failed.code, failed.error["code"]) == (4, "OVERLOADED")


@pytest.mark.parametrize(
    "args", [["--url", URL, "sessions", "--data-dir", "x"], ["sessions", "--data-dir", "x", "--url", URL]]
)
def test_a_daemon_and_a_directory_are_not_both_taken(shell: Shell, args: list[str]):
    refused = shell.codesdk(*args)
    assert refused.code == 2
    assert "Give --url or --data-dir, not both" in refused.err


@pytest.mark.parametrize("name", sorted(HERE_ONLY))
def test_what_works_only_here_refuses_a_daemon_wherever_it_is_named(shell: Shell, name: str):
    words = {"mcp": ["--workspace", "."], "policy": ["check", "--tool", "x"], "wrap": ["true"]}.get(name, [])
    # What follows the program that is wrapped is the program's, and so are the codes below ten.
    after = [name, "--url", URL, *words] if name == "wrap" else [name, *words, "--url", URL]
    code = 11 if name == "wrap" else 2
    for args in (["--url", URL, name, *words], after):
        refused = shell.codesdk(*args)
        assert (refused.code, "works only on a data directory" in refused.err) == (code, True), refused.err
    assert shell.codesdk("tokens", "--data-dir", "here", CODESDK_URL=URL).code == 0
    assert shell.codesdk(name, "--help", "--url", URL).code == 0
