"""Jobs that have to run apart while no child process is free: counted by how often they are claimed for nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from hawser import Hawser
from hawser.job import Claimed
from hawser.outcome import Failed, Failure
from hawser.store import Settlement, Share
from hawser.testing import ManualClock
from hawser.worker.isolates import Isolates
from hawser.worker.put_aside import ASKED_FOR, EARLY, MOST_PUT_ASIDE, PUT_ASIDE, PUT_ASIDE_BEYOND, PutAside
from tests.worker.conftest import Heard
from tests.worker.test_turns import LEASE, Parts

CROWD = 40


class Claims:
    """How often each job is claimed."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: Counter[str] = Counter()
        claim = store.claim

        async def counted(*arguments: Any, **options: Any) -> list[Claimed]:
            jobs: list[Claimed] = await claim(*arguments, **options)
            self.of.update(job.id for job in jobs)
            return jobs

        monkeypatch.setattr(store, "claim", counted)


class Children:
    """Stands for child processes: so many are ready."""

    def __init__(self, worker: Parts, monkeypatch: pytest.MonkeyPatch, ready: int) -> None:
        self.ready = ready
        self.ran: list[str] = []
        isolates, apart = worker.runners._isolates, worker.runners._apart
        monkeypatch.setattr(Isolates, "possible", True)
        monkeypatch.setattr(Isolates, "free", property(lambda _: self.ready > 0))
        monkeypatch.setattr(isolates, "room", lambda: self.ready)
        monkeypatch.setattr(isolates, "keep_ready", lambda: None)
        monkeypatch.setattr(apart, "start", self._start)

    def _start(self, run: Any) -> None:
        self.ready -= 1
        self.ran.append(run.job.id)
        run.work = SimpleNamespace(cancel=lambda: None)


async def test_a_crowd_that_no_child_process_is_free_for_is_claimed_once(monkeypatch: pytest.MonkeyPatch, heard: Heard):
    clock = ManualClock()
    app = Hawser("memory://", clock=clock)

    @app.task
    async def work() -> None: ...

    handles = [await work.aenqueue() for _ in range(CROWD)]
    store = await app.store()
    runs = await store.claim([Share("default")], CROWD, "dead", LEASE)
    lost = Failed(Failure("the worker process was killed"), 0.0, lost=True)
    await store.settle([Settlement(run.id, run.lease, lost) for run in runs])
    worker = Parts(app, store, heard, slots=CROWD)
    monkeypatch.setattr(worker.runners.put_aside, "_clock", lambda: clock.now() / 1e6)
    children, claims = Children(worker, monkeypatch, 0), Claims(store, monkeypatch)

    async def seconds(count: int) -> None:
        for _ in range(count):
            clock.advance(1.0)
            turn = asyncio.ensure_future(worker.claimer.turn())
            await asyncio.wait((turn,), timeout=0.02)  # nothing to claim: it would wait for a hint
            turn.cancel()
            await asyncio.wait((turn,))
            await worker.settled()

    await seconds(30)
    assert claims.of == Counter({handle.id: 1 for handle in handles}), "each was found to be one that cannot start, once"
    children.ready = 3
    await seconds(5)
    assert len(children.ran) == 3, "as many as there were child processes for"
    assert claims.of.total() == CROWD + 3, "and no other was claimed for it"
    await app.aclose()


def test_those_that_came_first_are_asked_for_first_and_one_that_is_gone_makes_room():
    now, ready = 100.0, 0
    aside = PutAside(lambda: ready, lambda: now)
    assert [aside.add(id) for id in "abc"] == [PUT_ASIDE] * 3
    assert (aside.left(), aside.asks_in()) == (frozenset(), None), "the store gives them to nobody yet"
    now += PUT_ASIDE - EARLY
    assert (aside.left(), aside.asks_in()) == (frozenset("abc"), None)
    ready = 1
    assert (aside.left(), aside.asks_in()) == (frozenset("abc"), EARLY)
    now += EARLY
    assert (aside.left(), aside.asks_in()) == (frozenset("bc"), None)
    now += ASKED_FOR + 0.1
    assert aside.left() == {"c"}, "another process has the first"
    aside.remove("b")
    ready = 0
    assert aside.left() == {"c"}
    aside.remove("c")
    assert not aside


def test_what_is_beyond_those_that_are_remembered_is_put_aside_for_longer():
    aside = PutAside(lambda: 0, lambda: 0.0)
    assert {aside.add(str(n)) for n in range(MOST_PUT_ASIDE)} == {PUT_ASIDE}
    assert aside.add("one more") == PUT_ASIDE_BEYOND
    assert aside.add("0") == PUT_ASIDE, "it is remembered already"
