"""`hawser completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    bash: eval "$(hawser completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc. fish: hawser completion fish >
    ~/.config/fish/completions/hawser.fish.
    """
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "hawser", "_HAWSER_COMPLETE").source())
