"""`hawser rewind`: run a job again from behind one of its steps."""

from __future__ import annotations

import click

from hawser.cli import options, replaying, show
from hawser.cli.opened_app import Opened, needs_store


@click.command()
@click.argument("id")
@click.option("--to", metavar="STEP", help="Go on behind this step: what was recorded later is forgotten.")
@click.option("--all", "everything", is_flag=True, help="Forget every step: the job begins anew.")
@options.reason
@options.confirm
@needs_store
def rewind(target: Opened, /, *, id: str, to: str | None, everything: bool, reason: str | None, confirm: bool) -> None:
    """Run a dead or cancelled job again from behind one of its steps.

    Later steps are forgotten and made again. `hawser steps ID` lists them.

    \b
      hawser rewind 0198… --to charge
    """
    if (to is None) is not everything:
        raise click.UsageError("say from where to go on: --to STEP, or --all to begin anew")
    replaying.rewind(target, id.strip().lower(), to, confirm=confirm, reason=reason)
    show.say(f"{id}  ready again" + ("" if to is None else f", behind step {to}"))
