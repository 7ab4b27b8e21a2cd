"""The groups that the jobs of one call come to."""

from __future__ import annotations


class Arrivals:
    """By lane and group when the first of those jobs is due, and whether one of them has to wait for its time."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, str], tuple[int, bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, lane: int, group: str, run_at: int, *, waited: bool) -> None:
        first, some_waited = self._places.get((lane, group), (run_at, False))
        self._places[lane, group] = min(run_at, first), waited or some_waited

    def columns(self) -> list[list[object]]:
        """As `arrive` asks for them."""
        rows = [(*place, *about) for place, about in self._places.items()]
        return [list(column) for column in zip(*rows, strict=True)]
