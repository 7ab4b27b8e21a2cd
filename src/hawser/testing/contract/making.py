"""Small makers of what the tests need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from hawser.clock import at, to_us
from hawser.job import Claimed, Job, NewJob, State, new_job
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Outcome, Released, Snoozed
from hawser.store import LEAVE_NOTHING, Acted, Actor, DeadLetter, LeaseRef, Leave, SettleAnswer, Settled, Settlement, Share, Store
from hawser.testing.clock import ManualClock

Opener = Callable[[], Awaitable[Store]]
"""What the fixtures `reopen` and `second` are."""

Ending = Callable[..., Settlement]
"""A maker of settlements, as below."""

SIGN = Actor(by="ann", reason="asked for")

OUTCOMES: tuple[Outcome, ...] = (
    Done(b'{"answer": 42}'),
    Failed(Failure("ValueError: no such user", "Traceback: line 1"), after=7.0),
    Failed(Failure("the process died"), after=7.0, lost=True),
    Dead(Failure("Drop: gone", "Traceback: line 2")),
    Snoozed(9.0, "too early"),
    Released(),
    Cancelled("not wanted"),
)

every_outcome = pytest.mark.parametrize(
    "outcome",
    OUTCOMES,
    ids=["done", "failed", "lost", "dead", "snoozed", "released", "cancelled"],
)


def a_job(**fields: Any) -> NewJob:
    return new_job(**{"task": "work", "body": b"{}", **fields})


WOKEN_WITHIN = 10.0
"""Seconds in which a wait that is to end has ended, on a busy machine, too."""


async def looks(store: Store, seconds: float = 0.5, leave: Leave = LEAVE_NOTHING) -> int:
    """How often a worker looks for jobs in that time, while there are none for it: a wait may end early, now and then."""
    loop = asyncio.get_running_loop()
    end, count = loop.time() + seconds, 0
    while (left := end - loop.time()) > 0:
        await store.wait(["default"], left, leave)
        assert await store.claim([Share("default")], 9, "w1", 60, leave=leave) == []
        count += 1
    return count


def now(clock: ManualClock, plus: float = 0.0) -> datetime:
    return at(clock.now() + to_us(plus))


def settle(claimed: Claimed, outcome: Outcome, *then: NewJob, keep: bool = True) -> Settlement:
    return Settlement(claimed.id, claimed.lease, outcome, then, keep)


def done(claimed: Claimed, *then: NewJob, result: bytes | None = None, keep: bool = True) -> Settlement:
    return settle(claimed, Done(result), *then, keep=keep)


def failed(claimed: Claimed, after: float = 0.0, error: str = "ValueError: no", traceback: str = "tb") -> Settlement:
    return settle(claimed, Failed(Failure(error, traceback), after))


def dead(claimed: Claimed, error: str = "Drop: gone", traceback: str = "tb") -> Settlement:
    return settle(claimed, Dead(Failure(error, traceback)))


def snoozed(claimed: Claimed, after: float = 0.0, reason: str | None = None) -> Settlement:
    return settle(claimed, Snoozed(after, reason))


def released(claimed: Claimed) -> Settlement:
    return settle(claimed, Released())


def cancelled(claimed: Claimed, reason: str | None = None) -> Settlement:
    return settle(claimed, Cancelled(reason))


def ref(claimed: Claimed, progress: bytes | None = None) -> LeaseRef:
    return LeaseRef(claimed.id, claimed.lease, progress)


def ids(jobs: Sequence[Claimed] | Sequence[Job] | Sequence[NewJob] | Sequence[DeadLetter]) -> list[str]:
    return [job.id for job in jobs]


async def add(store: Store, **fields: Any) -> str:
    """Enqueue one job that must be new; its id."""
    job = a_job(**fields)
    [answer] = await store.enqueue([job])
    assert answer.created
    return job.id


async def add_many(store: Store, count: int, **fields: Any) -> list[str]:
    jobs = [a_job(**fields) for _ in range(count)]
    assert all(answer.created for answer in await store.enqueue(jobs))
    return ids(jobs)


async def take(
    store: Store, limit: int = 100, queue: str = "default", worker: str = "w1", lease_for: float = 60.0
) -> list[Claimed]:
    return await store.claim([Share(queue)], limit, worker, lease_for)


async def take_one(store: Store, queue: str = "default", worker: str = "w1", lease_for: float = 60.0) -> Claimed:
    [claimed] = await take(store, 1, queue, worker, lease_for)
    return claimed


async def running(store: Store, worker: str = "w1", lease_for: float = 60.0, **fields: Any) -> Claimed:
    """Enqueue a job and claim it; nothing else may be due in its queue."""
    id = await add(store, **fields)
    claimed = await take_one(store, fields.get("queue", "default"), worker, lease_for)
    assert claimed.id == id
    return claimed


async def write(store: Store, *settlements: Settlement) -> None:
    assert said(await store.settle(settlements)) == [Settled.SETTLED] * len(settlements)


def said(answers: Sequence[SettleAnswer]) -> list[Settled]:
    """What became of settlements, without where the jobs went."""
    return [answer.said for answer in answers]


async def seen(store: Store, id: str) -> Job:
    job = await store.get(id)
    assert job is not None
    return job


async def in_state(store: Store, state: State, **fields: Any) -> str:
    """A job in that state, with one attempt if it ran; nothing else may be due in its queue."""
    if state is State.READY:
        return await add(store, **fields)
    claimed = await running(store, **fields)
    outcomes: dict[State, Outcome] = {
        State.DONE: Done(),
        State.DEAD: Dead(Failure("Drop: gone", "tb")),
        State.CANCELLED: Cancelled("not wanted"),
    }
    if state is not State.RUNNING:
        await write(store, settle(claimed, outcomes[state]))
    return claimed.id


async def ask_to_stop(store: Store, claimed: Claimed, actor: Actor = SIGN) -> None:
    assert await store.cancel([claimed.id], actor) == [Acted.ASKED]


async def lose(store: Store, clock: ManualClock, lease_for: float = 60.0) -> None:
    """Let the leases of all runs end, and take them back."""
    clock.advance(lease_for + 1)
    await store.reclaim(1000)
