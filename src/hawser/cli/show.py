"""Where output goes: rich on a terminal, aligned text in a pipe, one JSON document with --json. Notes go to stderr.

What came from a job passes through `clean` here and is never read as markup.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from hawser.cli.format import clean, clean_lines

if TYPE_CHECKING:
    # Importing rich takes 60 ms; a pipe does without.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

CELL_CHARACTERS: Final = 200
"""Characters of a cell, where no terminal's edge cuts it."""

_NAME_WIDTH: Final = 32
"""Characters of a name, on a terminal that is wide enough."""

_TEXT_WIDTH: Final = 16
"""Characters that a flexible column wants at least."""

_GAP: Final = 2

STYLES: Final = {
    "ready": "cyan",
    "scheduled": "blue",
    "retrying": "yellow",
    "held": "magenta",
    "running": "bold blue",
    "done": "green",
    "dead": "bold red",
    "cancelled": "dim",
    "failed": "yellow",
    "lost": "magenta",
    "paused": "bold yellow",
}


class TableColumn(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    whole: bool = False
    """Never cut, for ids that are copied."""
    flexible: bool = False
    """Takes what room is left, for texts."""
    drop: int = 0
    """On a narrow terminal the column that has 1 goes first, then 2, and so on; 0 stays."""


class Cell(NamedTuple):
    """A text with the style that it has on a terminal."""

    text: str
    style: str = ""


def on_terminal() -> bool:
    return sys.stdout.isatty()


def state(name: str) -> Cell:
    return Cell(name, STYLES.get(name, ""))


def table(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell | str]]) -> None:
    if on_terminal():
        console().print(rich_table(columns, rows))
    else:
        _plain(columns, [[_cell(cell) for cell in row] for row in rows])


def facts(pairs: Iterable[tuple[str, Cell | str]]) -> None:
    """What is known of one thing, a line each."""
    if on_terminal():
        console().print(rich_facts(pairs))
        return
    rows = [(name, _cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in rows), default=0)
    for name, cell in rows:
        click.echo(f"{name:<{width}}  {cell.text}")


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
    return Cell(clean(text, CELL_CHARACTERS), style)


def _line(cell: Cell) -> None:
    if on_terminal():
        console().print(_text(cell), soft_wrap=True)
    else:
        click.echo(cell.text)


def _plain(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]]) -> None:
    lines = [[column.title.upper() for column in columns], *([cell.text for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        places = zip(columns, widths, line, strict=True)
        click.echo(
            "  ".join(f"{text:>{width}}" if column.right else f"{text:<{width}}" for column, width, text in places).rstrip()
        )


# The terminal.


def console() -> Console:
    from rich.console import Console  # noqa: PLC0415  # as above

    return Console(markup=False, highlight=False, emoji=False)


def rich_facts(pairs: Iterable[tuple[str, Cell | str]]) -> Table:
    from rich.table import Table  # noqa: PLC0415  # as above

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        text = _text(_cell(value))
        text.no_wrap, text.overflow = False, "fold"
        grid.add_row(name, text)
    return grid


def rich_table(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell | str]], width: int | None = None) -> Table:
    """A table that fits: columns without content stay away, and on a narrow terminal those that may."""
    from rich import box  # noqa: PLC0415  # as above
    from rich.table import Table  # noqa: PLC0415

    cells = [[_cell(cell) for cell in row] for row in rows]
    sizes = [_size(column, [row[i].text for row in cells]) for i, column in enumerate(columns)]
    kept = _fitting(columns, sizes, console().width if width is None else width)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i in kept:
        table.add_column(
            columns[i].title,
            justify="right" if columns[i].right else "left",
            no_wrap=not columns[i].flexible,
            overflow="ellipsis",
            min_width=sizes[i] if columns[i].whole else None,
        )
    for row in cells:
        table.add_row(*(_text(row[i]) for i in kept))
    return table


def _size(column: TableColumn, texts: Sequence[str]) -> int:
    """The room that a column wants; none when nothing stands in it."""
    if not any(text not in ("", "-") for text in texts):
        return 0
    longest = max(len(column.title), *(len(text) for text in texts))
    return longest if column.whole else min(longest, _TEXT_WIDTH if column.flexible else _NAME_WIDTH)


def _fitting(columns: Sequence[TableColumn], sizes: Sequence[int], width: int) -> list[int]:
    """Which columns are shown, by their numbers."""
    kept = [i for i, size in enumerate(sizes) if size]
    for i in sorted((i for i in kept if columns[i].drop), key=lambda i: columns[i].drop):
        if sum(sizes[i] + _GAP for i in kept) - _GAP <= width:
            break
        kept.remove(i)
    return kept


def _text(cell: Cell) -> Text:
    from rich.text import Text  # noqa: PLC0415  # as above

    return Text(cell.text, style=cell.style, no_wrap=True, overflow="ellipsis")
