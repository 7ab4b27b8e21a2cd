"""The memory store: nothing to install, nothing kept after the process ends."""

from __future__ import annotations

from urllib.parse import urlsplit

from hawser.clock import Clock
from hawser.errors import ConfigError
from hawser.stores.memory.store import MemoryStore
from hawser.stores.url import without_password

__all__ = ["MemoryStore", "from_url"]


def from_url(url: str, clock: Clock) -> MemoryStore:
    """The store that `memory://` names: a new, empty one each time."""
    parts = urlsplit(url)
    if parts.netloc or parts.path or parts.query:
        raise ConfigError(f"store: memory:// takes nothing behind it, got {without_password(url)!r}")
    return MemoryStore(clock=clock)
