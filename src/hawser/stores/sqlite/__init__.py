"""The SQLite store: the default. One file, WAL mode, one writer per process, durable before it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from hawser.clock import Clock
from hawser.errors import ConfigError, did_you_mean
from hawser.store import Durability
from hawser.stores.schema import Schema
from hawser.stores.sqlite.migrate import schema_in
from hawser.stores.sqlite.store import SqliteStore
from hawser.stores.url import without_password

__all__ = ["SqliteStore", "from_url", "schema", "sizes"]

SQLITE_SETTINGS: Final = ("durability", "timeout", "enqueue_timeout")


def schema(url: str) -> Schema:
    """What stands in the file that the URL names."""
    return schema_in(Path(unquote(urlsplit(url).path.removeprefix("/"))))


def sizes(url: str) -> dict[str, int]:
    """Bytes of the file, and of the log that is not in it yet."""
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    parts = {"file": path, "log": path.with_name(f"{path.name}-wal")}
    return {name: part.stat().st_size for name, part in parts.items() if part.exists()}


def from_url(url: str, clock: Clock) -> SqliteStore:
    """The store of `sqlite:///relative.db` or `sqlite:////absolute.db`, and what stands behind a `?`: see `docs/stores.md`."""
    parts, shown = urlsplit(url), without_password(url)
    if parts.netloc:
        raise ConfigError(f"store: {shown!r} has two slashes; use {shown.replace('://', ':///', 1)} with three")
    path = unquote(parts.path.removeprefix("/"))
    if not path or path == ":memory:":
        raise ConfigError(f"store: {shown!r} names no file; use for example sqlite:///jobs.db, or memory:// for no file at all")
    settings = parse_qs(parts.query, keep_blank_values=True)
    for name in settings:
        if name not in SQLITE_SETTINGS:
            raise ConfigError(f"store: unknown setting {name!r} in the URL; {did_you_mean(name, SQLITE_SETTINGS)}")
    durability = settings.get("durability", ["durable"])[-1]
    if durability not in ("durable", "relaxed"):
        raise ConfigError(f"store: durability={durability!r} is not known; use durable or relaxed")
    return SqliteStore(
        path,
        clock=clock,
        durability=cast("Durability", durability),
        timeout=_seconds("timeout", settings) or 30.0,
        enqueue_timeout=_seconds("enqueue_timeout", settings),
    )


def _seconds(name: str, settings: Mapping[str, Sequence[str]]) -> float | None:
    if name not in settings:
        return None
    text = settings[name][-1]
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ConfigError(f"store: {name}={text!r} is not a time in seconds above 0 and up to 3600")
    return seconds
