"""Who goes on with jobs that wait, where the process died that was to do so."""

from __future__ import annotations

from hawser.store import GO_ON_WITHIN
from hawser.stores.memory import MemoryStore
from hawser.upkeep.recovery import UNUSED_LOOK_S, Recovery


class Waited(MemoryStore):
    """A store where jobs wait for others."""

    calls = 0

    async def go_on(self) -> bool:
        self.calls += 1
        return True


async def test_it_looks_within_the_time_that_the_store_promises():
    assert 0 < await Recovery(Waited()).turn() < GO_ON_WITHIN


async def test_it_goes_on_looking_whether_jobs_wait():
    assert await Recovery(MemoryStore()).turn() == UNUSED_LOOK_S <= GO_ON_WITHIN
