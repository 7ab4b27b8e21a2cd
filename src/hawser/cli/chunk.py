"""The chunks of a job's output, printed."""

from __future__ import annotations

import click

from hawser.cli import show
from hawser.cli.format import clean
from hawser.store import Chunk


class Printer:
    """Prints chunks as they come. What another run wrote begins on a new line, and a note says so."""

    def __init__(self) -> None:
        self._in_line = False
        self._lease: int | None = None

    def print(self, chunk: Chunk) -> None:
        if self._lease not in (None, chunk.lease):
            self.end()
            show.note(f"another run went on here: lease {chunk.lease}, attempt {chunk.attempt}")
        self._lease = chunk.lease
        value = chunk.value
        if isinstance(value, str):
            click.echo("\n".join(map(clean, value.split("\n"))), nl=False)
            self._in_line = not value.endswith("\n") if value else self._in_line
        else:
            self.end()
            click.echo(clean(chunk.body.decode()))

    def end(self) -> None:
        """Begin a new line, unless one was begun."""
        if self._in_line:
            click.echo("")
        self._in_line = False


def as_builtins(chunk: Chunk) -> dict[str, object]:
    """A chunk as JSON has it."""
    about = {"number": chunk.number, "at": chunk.at.isoformat(), "lease": chunk.lease, "attempt": chunk.attempt}
    return {**about, "value": chunk.value}
