"""Counts what workers over HTTP have settled, beside their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from hawser.api.roster import Roster
from hawser.errors import StoreError
from hawser.job import Job
from hawser.outcome import Outcome
from hawser.store import Settled, Settlement, Store
from hawser.telemetry.events import SettledBatch
from hawser.telemetry.meter import Meter

MOST: Final = 100
"""Requests whose jobs are looked up at a time; those of further ones are not counted."""


class Accounts:
    """The answer to a request never waits for this, nor does it fail with it."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._looking: set[asyncio.Task[None]] = set()

    def settled(self, store: Store, roster: Roster, settlements: Sequence[Settlement], answers: Sequence[Settled]) -> None:
        """Note what was written. What runs a job belongs to is known of those that were claimed here; others are looked up."""
        answered = list(zip(settlements, answers, strict=True))
        known = roster.settles(one.id for one, answer in answered if answer is not Settled.LOST)
        self._meter.settled_for_another((), sum(answer is Settled.LOST for answer in answers))
        written = [one for one, answer in answered if answer is Settled.SETTLED]
        here = [one for one in written if one.id in known]
        jobs, seconds = [known[one.id][0] for one in here], [known[one.id][1] for one in here]
        self._meter.settled(SettledBatch(here, [Settled.SETTLED] * len(here), jobs, seconds))
        others = [one for one in written if one.id not in known]
        if others and len(self._looking) < MOST:
            task = asyncio.get_running_loop().create_task(self._look_up(store, others))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def _look_up(self, store: Store, settlements: Sequence[Settlement]) -> None:
        found: list[tuple[Job, Outcome]] = []
        with suppress(StoreError):
            for one in settlements:
                if (job := await store.get(one.id)) is not None:
                    found.append((job, one.outcome))  # noqa: PERF401  # what was read before an error counts
        self._meter.settled_for_another(found, 0)

    async def stop(self) -> None:
        """Count what is still to be counted."""
        if self._looking:
            await asyncio.wait(self._looking)
