"""One page out of many results: what was run, whether it held, the figures and the plots."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any, Final

import msgspec

from hawser.errors import ConfigError
from hawser.lab.experiment import EXPERIMENTS, Result

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .25rem .75rem; text-align: left; vertical-align: top; }
tr { border-bottom: 1px solid #ddd; } code { background: #f4f4f4; padding: 0 .3rem; } svg { width: 100%; height: auto; }
.held { color: #2e7d32; } .broken { color: #b71c1c; } section { margin-top: 3rem; } ul { padding-left: 1.2rem; }
"""


def write(folder: Path) -> Path:
    """Gather every `result.json` below a folder into `report.html` there."""
    results = [(path.parent, msgspec.json.decode(path.read_bytes(), type=Result)) for path in folder.rglob("result.json")]
    if not results:
        raise ConfigError(f"no result.json below {folder}; run an experiment first: hawser lab loss --out {folder}")
    order = list(EXPERIMENTS)
    results.sort(key=lambda found: (order.index(found[1].experiment), found[1].store, found[1].started_at))
    page = folder / "report.html"
    page.write_text("\n".join(_page(results)))
    return page


def _page(results: list[tuple[Path, Result]]) -> Iterable[str]:
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Hawser: the lab</title><style>{STYLE}</style>'
    yield "<h1>What the lab found</h1>"
    yield "<table><tr><th>experiment</th><th>store</th><th>verdict</th><th>run</th><th>took</th></tr>"
    for _, result in results:
        name = f'<a href="#{_anchor(result)}">{escape(result.experiment)}</a>'
        form = " (quick)" if result.quick else ""
        yield (
            f"<tr><td>{name}{form}</td><td>{escape(result.store)}</td>{_verdict(result, 'td')}"
            f"<td>{escape(result.started_at)}</td><td>{result.seconds:,.0f} s</td></tr>"
        )
    yield "</table>"
    for folder, result in results:
        yield from _section(folder, result)


def _section(folder: Path, result: Result) -> Iterable[str]:
    yield f'<section id="{_anchor(result)}"><h2>{escape(result.experiment)} on {escape(result.store)}</h2>'
    yield f"<p>{escape(EXPERIMENTS[result.experiment])}</p>{_verdict(result, 'p')}"
    if result.broken:
        yield "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in result.broken) + "</ul>"
    yield f"<p>{escape(result.text)}</p>"
    for plot in sorted(folder.glob("plot*.svg"), key=lambda path: path.stem):
        yield plot.read_text()
    yield "<table>" + "".join(_row(name, value) for name, value in result.figures.items()) + "</table>"
    told = _words({**result.settings, **result.versions})
    machine = _words(result.machine)
    yield f"<p><code>{escape(result.command)}</code><br>{escape(told)}<br>{escape(machine)}</p></section>"


def _row(name: str, value: Any) -> str:
    shown = _rows(value) if isinstance(value, list) and value and isinstance(value[0], dict) else escape(_words(value))
    return f"<tr><th>{escape(_name(name))}</th><td>{shown}</td></tr>"


def _rows(rows: list[dict[str, Any]]) -> str:
    """A table of those columns that say anything."""
    columns = [name for name in rows[0] if any(row[name] not in ({}, None) for row in rows)]
    head = "".join(f"<th>{escape(_name(name))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(_words(row[name]))}</td>" for name in columns) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _words(value: Any) -> str:
    """A figure, or several of them, as people write it."""
    match value:
        case dict():
            return "; ".join(f"{_name(name)} {_words(each)}" for name, each in value.items()) or "none"
        case list():
            return ", ".join(map(_words, value)) or "none"
        case None:
            return "none"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case _:
            return str(value)


def _name(name: str) -> str:
    return name.replace("_", " ")


def _verdict(result: Result, tag: str) -> str:
    return f'<{tag} class="{escape(result.verdict)}">{escape(result.verdict)}</{tag}>'


def _anchor(result: Result) -> str:
    return escape(f"{result.experiment}-{result.store}")
