"""`codesdk completion`: the script that makes a shell complete commands, options and session ids."""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from codesdk.contract.errors import InvalidRequest

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_CODESDK_COMPLETE"
_USE = {
    "bash": 'eval "$(codesdk completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(codesdk completion zsh)"   # in ~/.zshrc',
    "fish": "codesdk completion fish > ~/.config/fish/completions/codesdk.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> int:
    """Print the completion script for a SHELL, by default for the one you use.

    Put this into the shell's start-up file: eval "$(codesdk completion bash)"
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        raise InvalidRequest(f"There is no completion for this shell. Name one of {', '.join(SHELLS)}.")
    click.echo(f"# {_USE[shell]}")
    click.echo(kind(ctx.find_root().command, {}, "codesdk", _VARIABLE).source())
    return 0
