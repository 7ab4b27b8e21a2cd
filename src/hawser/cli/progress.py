"""How far a long command is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hawser.lab.load import Show


def end_in_order() -> None:
    """Let a signal that ends us do so as Ctrl-C does: what was started is ended, what was mounted is gone."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


@contextmanager
def progress() -> Iterator[Show]:
    """Told what is going on, how much of it is done, and of how much. On standard error, so that the output stays clean."""
    if not sys.stderr.isatty():
        said: set[str] = set()

        def line(what: str, _: int, total: int) -> None:
            if what not in said:
                said.add(what)
                click.echo(f"{what}: {total}" if total else what, err=True)

        yield line
        return
    from rich.console import Console  # noqa: PLC0415  # slow to import, and only for a terminal
    from rich.progress import Progress, TaskID  # noqa: PLC0415  # as above

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def bar(what: str, done: int, total: int) -> None:
            if not total:
                bars.console.print(what)
                return
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield bar
