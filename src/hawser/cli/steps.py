"""`hawser steps`: what the runs of a job have achieved."""

from __future__ import annotations

from typing import Final

import click

from hawser.cli import options, show
from hawser.cli.format import instant, now
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import TableColumn
from hawser.store import RecordedStep

VALUE_CHARACTERS: Final = 200
"""Characters of a value in the table; --json has it whole."""

_STEP_COLUMNS: Final = (
    TableColumn("step", whole=True),
    TableColumn("kind", whole=True),
    TableColumn("recorded", whole=True),
    TableColumn("until", drop=1),
    TableColumn("lease", right=True, drop=2),
    TableColumn("value", flexible=True),
)


@click.command()
@click.argument("id")
@options.as_json
@needs_store
def steps(target: Opened, /, *, id: str, as_json: bool) -> None:
    """List the recorded steps of a job, in their order: a later run of it does not make them again."""
    found = target.app.steps(id.strip().lower())
    if as_json:
        show.document({"steps": [as_builtins(step) for step in found]})
    elif found:
        show.table(_STEP_COLUMNS, [_row(step) for step in found])
    else:
        show.note("the job has recorded no steps")


def as_builtins(step: RecordedStep) -> dict[str, object]:
    """A step as JSON has it."""
    until = None if step.until is None else step.until.isoformat()
    about = {"name": step.name, "kind": step.kind, "at": step.at.isoformat(), "lease": step.lease, "until": until}
    return {**about, "event": step.event, "value": step.value}


def _row(step: RecordedStep) -> list[str]:
    at, value = now(), step.value_body.decode()
    until = "" if step.until is None else instant(step.until, at)
    told = "" if step.kind in ("sleep", "timeout") or (step.open and step.event is not None) else value[:VALUE_CHARACTERS]
    return [step.name, step.kind, instant(step.at, at), until, str(step.lease), told]
