"""The schema of a store: which version stands there, which this Hawser wants, and what leads from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
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
        return self.version == self.newest and not self.statements


def migrations_in(package: str) -> list[Migration]:
    """The migrations of a store, oldest first: numbered files in its folder `migrations`."""
    # Not importlib.resources: it takes zipfile and more along, 0.8 MB in every process.
    folder = Path(str(import_module(package).__file__)).parent / "migrations"
    return sorted(
        Migration(int(path.name.split("_")[0]), path.read_text(encoding="utf-8"), path.name.endswith(LIVE))
        for path in folder.glob("*.sql")
    )


def too_new(version: int, newest: int) -> str:
    """Why a schema is refused."""
    return f"the schema has version {version}, this Hawser knows {newest}; upgrade Hawser (an older one may not write here)"
