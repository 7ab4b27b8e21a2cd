"""The memory store: nothing to install, nothing kept after the process ends."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from hawser.clock import Clock
from hawser.errors import ConfigError
from hawser.stores.memory.store import MemoryStore
from hawser.stores.url import check_password, without_password

__all__ = ["MemoryStore", "from_url"]


def from_url(url: str, clock: Clock) -> MemoryStore:
    """The store that `memory://` names: a new, empty one each time."""
    check_password(url)
    parts = urlsplit(url)
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        raise ConfigError(f"store: unknown setting {name!r} in the URL; memory:// takes none")
    if parts.netloc or parts.path or parts.query:
        raise ConfigError(f"store: memory:// takes nothing behind it, got {without_password(url)!r}")
    return MemoryStore(clock=clock)
