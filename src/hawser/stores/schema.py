"""The schema of a store: which version stands there, which this Hawser wants, and what leads from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

LIVE: Final = ".live.sql"
"""How the name of a migration ends whose statements are run each for itself: it may take long, beside running workers."""


class Migration(NamedTuple):
    """One step forward."""

    version: int
    script: str
    live: bool = False


class Schema(msgspec.Struct, frozen=True):
    """What stands in a store, and what this version of Hawser wants."""

    version: int
    """0 when nothing is there yet."""
    newest: int
    statements: Sequence[str]
    """What would be run to get there; nothing when it is current."""

    @property
    def current(self) -> bool:
        return self.version == self.newest


def migrations_in(package: str) -> list[Migration]:
    """The migrations of a store, oldest first: numbered files in its folder `migrations`."""
    folder = files(package) / "migrations"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted(
        Migration(int(entry.name.split("_")[0]), entry.read_text(encoding="utf-8"), entry.name.endswith(LIVE)) for entry in found
    )


def too_new(version: int, newest: int) -> str:
    """Why a schema is refused."""
    return f"the schema has version {version}, this Hawser knows {newest}; upgrade Hawser (an older one may not write here)"
