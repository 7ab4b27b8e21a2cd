"""How often a test repeats what it does: little in `script/test`, much in `script/long`.

Only repetition differs: more random histories, more kills, a second version of a server, a second store where the first proves as
much. Each promise is tested in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

LONG: Final = os.environ.get("HAWSER_TESTS") == "long"
"""`HAWSER_TESTS=long`, as `script/long` sets it."""


def times(usual: int, long: int) -> int:
    """How often: in `script/test`, and in `script/long`."""
    return long if LONG else usual


def over(usual: Iterable[str], long: Iterable[str]) -> list[str]:
    """On which stores, or in which forms: in `script/test`, and those besides in `script/long`."""
    return [*usual, *(long if LONG else ())]
