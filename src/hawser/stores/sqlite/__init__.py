"""The SQLite store: the default. One file, WAL mode, one writer per process, durable before it answers."""

from __future__ import annotations

from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit

from hawser.clock import Clock
from hawser.errors import ConfigError
from hawser.store import Durability
from hawser.stores.schema import Schema
from hawser.stores.sqlite.migrate import schema_in
from hawser.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "from_url", "schema"]


def schema(url: str) -> Schema:
    """What stands in the file that the URL names."""
    return schema_in(Path(unquote(urlsplit(url).path.removeprefix("/"))))


def from_url(url: str, clock: Clock) -> SqliteStore:
    """The store of `sqlite:///relative.db` or `sqlite:////absolute.db`, with `?durability=relaxed` and `?timeout=SECONDS`."""
    parts = urlsplit(url)
    if parts.netloc:
        raise ConfigError(f"store: {url!r} has two slashes; use sqlite:///{parts.netloc}{parts.path} with three")
    path = unquote(parts.path.removeprefix("/"))
    if not path or path == ":memory:":
        raise ConfigError(f"store: {url!r} names no file; use for example sqlite:///jobs.db, or memory:// for no file at all")
    settings = parse_qs(parts.query, keep_blank_values=True)
    for name in settings:
        if name not in ("durability", "timeout"):
            raise ConfigError(f"store: {url!r} has the unknown setting {name!r}; known are durability and timeout")
    durability = settings.get("durability", ["durable"])[-1]
    if durability not in ("durable", "relaxed"):
        raise ConfigError(f"store: durability={durability!r} is not known; use durable or relaxed")
    try:
        timeout = float(settings.get("timeout", ["30"])[-1])
    except ValueError:
        timeout = 0.0
    if not 0 < timeout <= 3600:
        raise ConfigError(f"store: timeout={settings['timeout'][-1]!r} is not a time in seconds above 0 and up to 3600")
    return SqliteStore(path, clock=clock, durability=cast("Durability", durability), timeout=timeout)
