"""The memory store: nothing to install, nothing kept after the process ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from hawser.clock import Clock
from hawser.errors import ConfigError
from hawser.stores.memory.store import MemoryStore
from hawser.stores.url import check_password, without_password

if TYPE_CHECKING:
    from hawser.stores.memory.journal import JournaledStore

__all__ = ["MemoryStore", "from_url"]


def from_url(url: str, clock: Clock) -> MemoryStore | JournaledStore:
    """The store that `memory://` names: a new, empty one each time, or the one in a journal."""
    check_password(url)
    parts = urlsplit(url)
    journal: str | None = None
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "journal":
            raise ConfigError(f"store: unknown setting {name!r} in the URL; memory:// takes journal=FOLDER")
        if not value or "\0" in value:
            raise ConfigError("store: journal= names no folder; write for example memory://?journal=jobs.journal")
        journal = value
    if parts.netloc or parts.path or (parts.query and journal is None):
        raise ConfigError(f"store: memory:// takes nothing behind it but ?journal=FOLDER, got {without_password(url)!r}")
    if journal is None:
        return MemoryStore(clock=clock)
    from hawser.stores.memory.journal import JournaledStore  # noqa: PLC0415  # builds on this module

    return JournaledStore(Path(journal), clock=clock)
