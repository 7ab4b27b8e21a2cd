"""What an attack case is, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Seen:
    """What a case found. `text` is one line with the figures, also when the promise was kept."""

    held: bool
    text: str


@dataclass(frozen=True)
class Case:
    """One fault, on one kind of store, with the promise that must hold under it."""

    name: str
    """Short, lower case, with dashes: it is what the command line takes."""
    store: str
    """`sqlite`, `postgres`, `redis`, or `any` when the store makes no difference."""
    fault: str
    """What is done, in one line."""
    wanted: str
    """What must hold, in one line."""
    run: Callable[[Path], Seen]
    """Plays the fault in an empty folder of its own. It starts what it needs and leaves no process behind."""
