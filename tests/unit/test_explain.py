"""Why a job is not running."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from hawser.batch import new_batch
from hawser.breaker import Breaker
from hawser.client.explain import ALIVE_FOR, holds, why
from hawser.clock import at
from hawser.job import Job, new_job
from hawser.limit import Limit
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Held, Outcome, Snoozed
from hawser.policy import QueuePolicy
from hawser.store import Actor, Beat, Settlement, Share, Store, Target
from hawser.store.breakers import BreakerVerdict
from hawser.stores import make_store
from hawser.testing import ManualClock

BEAT = Beat(worker="w1", host="h", pid=1, version="1", queues=("mail",), slots=2, running=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    store = make_store("memory://", clock=clock)
    await store.open()
    yield store
    await store.close()


class Asker:
    """Makes jobs of one queue and asks why they wait."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    async def add(self, **fields: Any) -> str:
        job = new_job(task="send", queue="mail", body=b"{}", **fields)
        await self.store.enqueue([job])
        return job.id

    async def ended(self, outcome: Outcome, **fields: Any) -> str:
        """A job whose first attempt came to this."""
        id = await self.add(**fields)
        [claimed] = await self.store.claim([Share("mail")], 1, "w1", 60.0)
        assert claimed.id == id
        await self.store.settle([Settlement(id, claimed.lease, outcome)])
        return id

    async def job(self, id: str) -> Job:
        job = await self.store.get(id)
        assert job is not None
        return job

    async def holds(self, id: str) -> list[str]:
        return await holds(self.store, await self.job(id), at(self.clock.now()))


@pytest.fixture
def asker(store: Store, clock: ManualClock) -> Asker:
    return Asker(store, clock)


def utc(clock: ManualClock, seconds: float = 0.0) -> str:
    return f"{at(clock.now()) + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} UTC"


@pytest.mark.parametrize("outcome", [Done(), Dead(Failure("no")), Cancelled("not wanted"), None])
async def test_a_job_that_runs_or_has_ended_is_not_held(asker: Asker, outcome: Outcome | None):
    id = await asker.add() if outcome is None else await asker.ended(outcome)
    if outcome is None:
        await asker.store.claim([Share("mail")], 1, "w1", 60.0)
    assert await asker.holds(id) == []
    assert await why(asker.store, await asker.job(id), at(asker.clock.now())) is None


async def test_a_job_that_is_not_due_says_when_it_is(asker: Asker, clock: ManualClock):
    assert await asker.holds(await asker.add(delay=60)) == [f"not due before {utc(clock, 60)}"]


async def test_a_job_that_is_tried_again_says_so(asker: Asker, clock: ManualClock):
    id = await asker.ended(Failed(Failure("no"), 30.0), max_attempts=4)
    assert await asker.holds(id) == [f"not due before {utc(clock, 30)}, for attempt 2 of 4"]


async def test_a_job_whose_task_no_living_worker_knows_says_so(asker: Asker, store: Store):
    reason = "worker w1 cannot run it: no task 'send' is registered there"
    id = await asker.ended(Snoozed(0.0, reason))
    await store.beat([replace(BEAT, tasks={"other": "a1"})])
    assert await asker.holds(id) == [f"no living worker that serves queue mail knows task send; {reason}"]
    await store.beat([replace(BEAT, worker="w2", tasks={"send": "a1"})])
    assert await asker.holds(id) == ["due: a worker takes it at its next look", f"was handed back before: {reason}"]


async def test_a_job_that_was_put_aside_says_why(asker: Asker, store: Store, clock: ManualClock):
    reason = "no task 'send' is registered in the worker that claimed it"
    id = await asker.ended(Snoozed(60.0, reason))
    assert await asker.holds(id) == [f"not due before {utc(clock, 60)}, put aside: {reason}"]
    clock.advance(60)
    await store.beat([BEAT])
    assert await asker.holds(id) == ["due: a worker takes it at its next look", f"was handed back before: {reason}"]


async def test_a_pause_is_told_with_its_reason_and_end(asker: Asker, store: Store, clock: ManualClock):
    id = await asker.add()
    await store.beat([BEAT])
    until = at(clock.now()) + timedelta(seconds=600)
    await store.pause(Target("queue", "mail"), Actor(by="ann", reason="smtp is down"), until)
    await store.pause(Target("task", "send"), Actor(by="bob"))
    await store.pause(Target("queue", "send"), Actor())
    await store.pause(Target("task", "mail"), Actor())
    assert await asker.holds(id) == [
        f"queue mail is paused by ann since {utc(clock)} until {utc(clock, 600)}: smtp is down",
        f"task send is paused by bob since {utc(clock)}",
    ]
    later = await asker.add(delay=30)
    assert (await asker.holds(later))[2:] == [f"not due before {utc(clock, 30)}"]


async def test_a_queue_that_no_living_worker_serves_is_told(asker: Asker, store: Store, clock: ManualClock):
    id = await asker.add()
    unserved = ["no living worker serves queue mail"]
    assert await asker.holds(id) == unserved
    await store.beat([replace(BEAT, worker="w2", queues=("bulk",))])
    assert await asker.holds(id) == unserved
    await store.beat([BEAT])
    assert await asker.holds(id) == ["due: a worker takes it at its next look"]
    clock.advance(ALIVE_FOR)
    assert await asker.holds(id) == unserved
    await store.pause(Target("queue", "mail"), Actor())
    assert (await asker.holds(id))[1:] == unserved


async def test_workers_that_drain_take_no_more(asker: Asker, store: Store):
    id = await asker.add()
    await store.beat([replace(BEAT, draining=True)])
    assert await asker.holds(id) == ["all workers that serve queue mail are draining: they take no more jobs"]
    await store.beat([replace(BEAT, worker="w2")])
    assert await asker.holds(id) == ["due: a worker takes it at its next look"]


async def test_a_job_among_others_waits_for_its_turn(asker: Asker, store: Store):
    id = await asker.add()
    await store.beat([BEAT])
    await asker.add()
    assert await asker.holds(id) == ["waits for its turn: 1 other job of queue mail is due"]
    await asker.add()
    await asker.add()
    await asker.add(delay=60)
    assert await asker.holds(id) == ["waits for its turn: 3 other jobs of queue mail are due"]


async def test_workers_whose_slots_are_busy_are_told(asker: Asker, store: Store):
    id = await asker.add()
    await store.beat([replace(BEAT, running=2), replace(BEAT, worker="w2", running=3)])
    assert (await asker.holds(id))[1:] == ["all 4 slots of the workers that serve queue mail are busy"]
    await store.beat([replace(BEAT, running=1)])
    assert (await asker.holds(id))[1:] == []


async def test_a_policy_that_lets_few_run_at_once_is_told(asker: Asker, store: Store):
    id = await asker.add()
    await store.beat([BEAT])
    await store.set_policy("mail", QueuePolicy(concurrency=1), Actor())
    assert (await asker.holds(id))[1:] == ["the policy of queue mail lets 1 run at once in a worker process"]


async def test_a_limit_that_is_full_is_told_with_its_numbers(asker: Asker, store: Store, clock: ManualClock):
    await store.beat([BEAT])
    await store.set_limit(Target("queue", "mail"), Limit(running=1), Actor())
    await store.set_limit(Target("task", "send"), Limit(rate="1/m"), Actor())
    await asker.add()
    id = await asker.add()
    assert (await asker.holds(id))[0].startswith("waits for its turn")
    await store.claim([Share("mail")], 1, "w1", 60.0)
    opens_at = next(use.opens_at for use in await store.limits() if use.opens_at is not None)
    assert await asker.holds(id) == [
        "queue mail runs 1 of 1 at once (limit of queue mail)",
        f"task send has started 1 in the last minute; the next may at {opens_at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    await asker.add()
    assert (await asker.holds(id))[2:] == ["1 other job of queue mail is due"]


async def test_a_group_at_its_limit_is_told_with_its_numbers(asker: Asker, store: Store):
    await store.beat([BEAT])
    await store.set_limit(Target("task", "send"), Limit(running=2, rate="2/m", per_group=True), Actor())
    for _ in range(2):
        await asker.add(group="acme")
    id = await asker.add(group="acme")
    await store.claim([Share("mail")], 9, "w1", 60.0)
    wait = await store.group_wait(id)
    assert wait is not None
    whose, opens_at = "(limit per group of task send)", f"{wait.opens_at:%Y-%m-%d %H:%M:%S} UTC"
    assert await asker.holds(id) == [
        f"group acme runs 2 of 2 {whose}",
        f"group acme has started 2 in the last minute; the next may at {opens_at} {whose}",
    ]
    assert (await asker.holds(await asker.add(group="other")))[0] == "due: a worker takes it at its next look"


async def test_the_job_that_goes_first_of_an_ordered_group_is_named(asker: Asker, store: Store):
    await store.beat([BEAT])
    await store.set_limit(Target("task", "send"), Limit(running=1, per_group=True, ordered=True), Actor())
    first, second = await asker.add(group="acme"), await asker.add(group="acme")
    told = f"group acme keeps its order: job {first} goes first, {{}} (limit per group of task send)"
    assert await asker.holds(second) == [told.format("not ended yet")]
    [run] = await store.claim([Share("mail")], 9, "w1", 60.0)
    assert await asker.holds(second) == [told.format("running")]
    await store.settle([Settlement(run.id, run.lease, Failed(Failure("ValueError: no"), 600))])
    assert await asker.holds(second) == [told.format("not ended yet")]


async def test_groups_and_jobs_before_are_told(asker: Asker, store: Store):
    await store.beat([BEAT])
    for group in ("a", "b", "b", "c"):
        await asker.add(group=group)
    ids = [await asker.add(group="b"), await asker.add(group="d")]
    assert [(await asker.holds(id))[0] for id in ids] == [
        "waits for its turn: 1 group is before b, 2 jobs of b before it",
        "waits for its turn: 3 groups are before d, 0 jobs of d before it",
    ]


async def test_an_open_breaker_is_told_with_what_failed_and_the_next_probe(asker: Asker, store: Store, clock: ManualClock):
    await store.beat([BEAT])
    id = await asker.add()
    await store.declare_breakers({"send": Breaker(probe_every=60)})
    [status] = await store.breakers()
    await store.judge([BreakerVerdict(task="send", revision=status.revision, open=True, failed=83, attempts=100)])
    [line] = await asker.holds(id)
    assert line == (
        "the breaker of task send is open since 2026-01-01 12:00:00 UTC (83 % of 100 attempts failed); "
        "next probe at 2026-01-01 12:01:00 UTC"
    )
    other = await asker.add()
    clock.advance(60)
    await store.beat([BEAT])
    [probe] = await store.claim([Share("mail")], 9, "w1", 60.0)
    assert (await asker.holds(other))[0].endswith("next probe at 2026-01-01 12:02:00 UTC")
    await store.settle([Settlement(probe.id, probe.lease, Failed(Failure("TimeoutError: no answer\nmore"), 600))])
    assert (await asker.holds(other))[0].endswith("next probe at 2026-01-01 12:02:00 UTC, last: TimeoutError: no answer")
    clock.advance(-60)
    await store.open_breaker("send", Actor("ann"))
    [line] = await asker.holds(other)
    assert line == "the breaker of task send is open since 2026-01-01 12:00:00 UTC, by ann, until a person closes it"


async def test_a_job_that_expires_says_when(asker: Asker, store: Store, clock: ManualClock):
    await store.beat([BEAT])
    id = await asker.add(expires=600)
    told = await holds(store, await asker.job(id), at(clock.now()))
    expires_at = at(clock.now()) + timedelta(seconds=600)
    assert told == ["due: a worker takes it at its next look", f"expires at {expires_at:%Y-%m-%d %H:%M:%S} UTC"]
    later = at(clock.now()) + timedelta(seconds=601)
    assert (await holds(store, await asker.job(id), later))[-1] == f"expired at {expires_at:%Y-%m-%d %H:%M:%S} UTC"
    await store.claim([Share("mail")], 1, "w1", 60.0)
    assert await holds(store, await asker.job(id), at(clock.now())) == []


async def test_a_held_job_names_what_it_waits_for(store: Store, clock: ManualClock):
    asker = Asker(store, clock)
    stopped = await asker.ended(Dead(Failure("ValueError: no")))
    done = await asker.ended(Done())
    upstream = await asker.add()
    held = await asker.add(waits_for=(stopped, done, upstream))
    job = await asker.job(held)
    told = f"{stopped} (dead: requeue or discard it), {upstream} (ready)"
    assert await why(store, job, at(clock.now())) == f"waits for 2 of 3 jobs: {told}"
    await store.pause(Target("queue", "mail"), Actor())
    assert (await holds(store, job, at(clock.now())))[1:] == [f"waits for 2 of 3 jobs: {told}"]
    many = [await asker.add() for _ in range(13)]
    held = await asker.add(waits_for=tuple(many))
    assert (await holds(store, await asker.job(held), at(clock.now())))[-1].endswith(" and 3 more")


async def test_a_wait_that_a_job_does_not_wait_at_any_more_is_not_told(asker: Asker, clock: ManualClock):
    """It was cancelled there, and requeued when its code had changed."""
    id, child = await asker.add(), new_job(task="part", queue="parts", body=b"{}")
    outcomes = Held("packed", event="packed"), Held("parts", jobs=(child.id,)), Held("paid", event="paid")
    told = []
    for outcome in outcomes:
        [run] = await asker.store.claim([Share("mail")], 1, "w1", 60.0)
        then = (child,) if outcome.jobs else ()
        await asker.store.settle([Settlement(id, run.lease, outcome, then=then)])
        told.append((await asker.holds(id))[0])
        await asker.store.cancel([id], Actor())
        await asker.store.requeue([id], Actor())
    assert told[1] == f"its handler waits for jobs of its own at step 'parts', since {utc(clock)}"
    assert told[2] == f"its handler waits for the event 'packed', since {utc(clock)}, without an end", "either lets it go on"


async def test_a_job_that_waits_for_a_batch_says_how_that_stands(store: Store, clock: ManualClock):
    asker = Asker(store, clock)
    batch = new_batch(name="import-42", then=new_job(task="send", queue="mail", body=b"{}"))
    await store.open_batch(batch)
    assert batch.then is not None

    async def told() -> str | None:
        return await why(store, await asker.job(batch.follow_ups["then"].id), at(clock.now()))

    opened = "batch import-42 is still open: its producer has not closed it"
    assert await told() == f"{opened}; if it is gone: hawser batches close {batch.id}"
    members = [await asker.add(batch=batch.id) for _ in range(2)]
    await store.close_batch(batch.id)
    assert await told() == "waits for batch import-42: 2 of 2 jobs have not ended"
    after = await asker.add(waits_for=(batch.id, *members))
    for job in await store.claim([Share("mail")], 2, "w1", 60.0):
        await store.settle([Settlement(job.id, job.lease, Dead(Failure("ValueError: no")))])
    lines = await holds(store, await asker.job(after), at(clock.now()))
    assert lines[0].startswith("waits for 2 of 3 jobs: ")
    assert lines[1] == "waits for batch import-42: 2 of 2 jobs are dead: requeue or discard them"
