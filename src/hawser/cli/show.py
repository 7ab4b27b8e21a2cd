"""Where output goes: rich on a terminal, aligned text in a pipe, one JSON document with --json. Notes go to stderr.

Whatever came from a job passes through `clean` here and is never read as markup.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from hawser.cli.words import clean, clean_lines

if TYPE_CHECKING:
    # Importing rich takes 60 ms; a pipe does without.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

LONGEST: Final = 200
"""Characters of a cell, where no terminal's edge cuts it."""

STYLES: Final = {
    "ready": "cyan",
    "scheduled": "blue",
    "retrying": "yellow",
    "running": "bold blue",
    "done": "green",
    "dead": "bold red",
    "cancelled": "dim",
    "failed": "yellow",
    "lost": "magenta",
    "paused": "bold yellow",
}


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    whole: bool = False
    """Never cut, for ids that are copied."""
    flexible: bool = False
    """Takes what room is left, for texts."""


class Cell(NamedTuple):
    """A text with the style that it has on a terminal."""

    text: str
    style: str = ""


def on_terminal() -> bool:
    return sys.stdout.isatty()


def state(name: str) -> Cell:
    return Cell(name, STYLES.get(name, ""))


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell | str]]) -> None:
    cells = [[_cell(cell) for cell in row] for row in rows]
    if on_terminal():
        console().print(rich_table(columns, cells))
    else:
        _plain(columns, cells)


def facts(pairs: Iterable[tuple[str, Cell | str]]) -> None:
    """What is known of one thing, a line each."""
    rows = [(name, _cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in rows), default=0)
    for name, cell in rows:
        _line(Cell(f"{name:<{width}}  ", "dim"), cell)


def heading(text: str) -> None:
    say("")
    _line(Cell(text, "bold"))


def block(text: str) -> None:
    """Lines as they are, indented."""
    for line in clean_lines(text):
        _line(Cell(f"  {line}"))


def say(text: str, style: str = "") -> None:
    _line(Cell(clean(text), style))


def note(text: str) -> None:
    """A line that is not the answer, beside it."""
    click.echo(clean(text), err=True)


def document(value: Any) -> None:
    """One JSON document."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # Outside of ASCII only texts remain, and there an escape means the same: no terminal obeys it.
    click.echo(re.sub(r"[^\n\x20-\x7e]", _escaped, text))


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _cell(cell: Cell | str) -> Cell:
    text, style = cell if isinstance(cell, Cell) else (cell, "")
    return Cell(clean(text, LONGEST), style)


def _line(*cells: Cell) -> None:
    if on_terminal():
        console().print(*(_text(cell) for cell in cells), sep="", soft_wrap=True)
    else:
        click.echo("".join(cell.text for cell in cells).rstrip())


def _plain(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    lines = [[column.title.upper() for column in columns], *([cell.text for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        places = zip(columns, widths, line, strict=True)
        click.echo("  ".join(f"{text:>{width}}" if column.right else f"{text:<{width}}" for column, width, text in places).rstrip())


# The terminal.


def console() -> Console:
    from rich.console import Console  # noqa: PLC0415  # as above

    return Console(markup=False, highlight=False, emoji=False)


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Table:
    from rich import box  # noqa: PLC0415  # as above
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.flexible,
            overflow="ellipsis",
            min_width=max((len(row[len(table.columns)].text) for row in rows), default=0) if column.whole else None,
        )
    for row in rows:
        table.add_row(*(_text(cell) for cell in row))
    return table


def _text(cell: Cell) -> Text:
    from rich.text import Text  # noqa: PLC0415  # as above

    return Text(cell.text, style=cell.style, no_wrap=True, overflow="ellipsis")
