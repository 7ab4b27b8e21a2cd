"""Settlements as the statements take them: by what is to be done with them, and as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from hawser.outcome import holds, worked
from hawser.store import Settlement
from hawser.value.ids import is_id

Key = tuple[str, int]
"""A run, by its job and its lease."""


class SortedOut(NamedTuple):
    """Settlements by what is to be done with them."""

    first: dict[Key, int]
    """The place of each run that can stand; a run that is settled twice has that of the first."""
    done: list[Settlement]
    other: list[Settlement]
    apart: list[Settlement]
    """Those that need a transaction of several statements."""


def sorted_out(settlements: Sequence[Settlement]) -> SortedOut:
    found = SortedOut({}, [], [], [])
    first, done, other, apart = found
    for n, s in enumerate(settlements):
        key = s.id, s.lease
        if key in first or (s.hint is None and not is_id(s.id)):
            continue
        first[key] = n
        if s.then or s.doubtful or holds(s.outcome) or (not s.keep and leaves_something(s)):
            apart.append(s)
        else:
            (done if worked(s.outcome) else other).append(s)
    return found


def are_plain(settlements: Sequence[Settlement]) -> bool:
    """Whether all were done, each is known from its claim, and nothing else is to be written with one: nearly always so."""
    for s in settlements:
        if not worked(s.outcome) or s.hint is None or s.then or s.doubtful or (not s.keep and leaves_something(s)):
            return False
    return bool(settlements)


def finish_arguments(given: int | None, settlements: Sequence[Settlement]) -> tuple[str, tuple[Any, ...]]:
    """The statement for these settlements, in the order of their ids, and its arguments."""
    ids, keep = [s.id for s in settlements], [s.keep for s in settlements]
    unknown = not all(s.hint for s in settlements)
    asked = given, ids, unknown, [s.lease for s in settlements], None if all(keep) else keep
    results = [s.outcome.result if worked(s.outcome) else None for s in settlements]
    if not any(results) and len(set(ids)) == len(ids):
        return "finish_plain", asked
    return "finish", (*asked, results)


def in_lock_order(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Every process takes locks in this order, so that there is no deadlock."""
    return sorted(settlements, key=attrgetter("id"))


def leaves_something(settlement: Settlement) -> bool:
    """Whether nothing is kept of the job, and it may have steps or output: not in its first run, or settled without a hint."""
    return not settlement.keep and worked(settlement.outcome) and (settlement.lease > 1 or settlement.hint is None)
