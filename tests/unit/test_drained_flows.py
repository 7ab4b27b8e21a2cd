"""`hawser_app.drain()` with jobs that belong together: batches, chains, sleeps, gathered jobs, events, groups. No time passes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from hawser import Context, EventTimeout, Fixed, Limit, SyncContext
from hawser.testing import AppUnderTest


@pytest.fixture(autouse=True)
def in_no_time() -> Iterator[None]:
    """Days pass for the jobs, and seconds at most for the test."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 20


def test_a_batch_is_drained_with_the_job_behind_it(hawser_app: AppUnderTest):
    sent: list[str] = []

    @hawser_app.task(max_attempts=3, backoff=Fixed(every=3600, jitter="none"))
    def send(ctx: Context, to: str) -> None:
        if to == "bob" and ctx.job.attempt == 1:
            raise ConnectionError("not yet")
        sent.append(to)

    @hawser_app.task
    def report(campaign: int) -> str:
        return f"{campaign}: {len(sent)}"

    began = hawser_app.now
    with hawser_app.batch("campaign", then=report.job(7)) as batch:
        for to in ("ann", "bob", "cid"):
            batch.add(send.job(to))
    drained = hawser_app.drain()
    assert (drained.runs, drained.done, drained.dead) == (5, 4, 0)
    assert hawser_app.enqueued(report)[0].result == "7: 3"
    assert hawser_app.now - began == timedelta(hours=1)
    assert (hawser_app.get_batch(batch.id).state, hawser_app.get_batch(batch.id).done) == ("done", 3)


def test_a_chain_is_drained_link_by_link(hawser_app: AppUnderTest):
    order: list[str] = []

    @hawser_app.task
    def link(ctx: Context, *, left: int) -> None:
        order.append(f"link {left}")
        if left:
            ctx.enqueue(link.using(delay=3600).job(left=left - 1))

    link.enqueue(left=2)
    assert hawser_app.drain().done == 1  # a job that is delayed waits for the clock
    for _ in range(2):
        hawser_app.advance(3600)
        assert hawser_app.drain().done == 1
    assert order == ["link 2", "link 1", "link 0"]


def test_a_job_is_drained_behind_those_that_it_waits_for(hawser_app: AppUnderTest):
    order: list[str] = []

    @hawser_app.task
    def part(name: str) -> None:
        order.append(name)

    @hawser_app.task
    def merge() -> None:
        order.append("merge")

    parts = [part.job(name) for name in "abc"]
    hawser_app.enqueue_many([*parts, merge.job().after(*parts)])
    assert hawser_app.drain().done == 4
    assert (sorted(order[:3]), order[3]) == (["a", "b", "c"], "merge")


def test_steps_are_made_once_and_sleeps_pass_in_no_time(hawser_app: AppUnderTest):
    made: list[str] = []

    @hawser_app.task
    def remind(ctx: SyncContext, user: str) -> str:
        ctx.step("welcome", lambda: made.append(f"welcome {user}"))
        ctx.sleep("settle in", days=2)
        ctx.step("reminder", lambda: made.append(f"still there, {user}?"))
        ctx.sleep("a while", hours=12)
        return "reminded"

    began = hawser_app.now
    handle = remind.enqueue("ann")
    drained = hawser_app.drain()
    assert (drained.runs, drained.done) == (3, 1)
    assert made == ["welcome ann", "still there, ann?"]
    assert hawser_app.now - began == timedelta(days=2, hours=12)
    assert (hawser_app.get(handle.id).result, hawser_app.get(handle.id).attempt) == ("reminded", 1)


def test_gathered_jobs_are_drained_and_their_parent_goes_on(hawser_app: AppUnderTest):
    @hawser_app.task(max_attempts=2, backoff=Fixed(every=600))
    def label(ctx: Context, parcel: int) -> str:
        if parcel == 1 and ctx.job.attempt == 1:
            raise ConnectionError("the printer is out of paper")
        return f"track-{parcel}"

    @hawser_app.task
    def send(ctx: SyncContext, parcels: int) -> list[str]:
        ctx.sleep("until tomorrow", days=1)
        return ctx.gather(*(label.job(n) for n in range(parcels)))

    handle = send.enqueue(3)
    assert hawser_app.drain(raise_errors=False).done == 4
    assert hawser_app.get(handle.id).result == ["track-0", "track-1", "track-2"]


async def test_async_handlers_gather_and_sleep_in_an_async_test(hawser_app: AppUnderTest):
    @hawser_app.task
    async def double(n: int) -> int:
        return 2 * n

    @hawser_app.task
    async def total(ctx: Context) -> int:
        await ctx.sleep("first", hours=1)
        return sum(await ctx.gather(double.job(1), double.job(2)))

    handle = await total.aenqueue()
    assert (await hawser_app.adrain()).done == 3
    assert (await hawser_app.aget(handle.id)).result == 6


async def test_a_handler_asks_its_store_once_for_what_is_kept_and_once_for_each_step(
    hawser_app: AppUnderTest, monkeypatch: pytest.MonkeyPatch
):
    """What each call costs on a store is counted in `tests/stores/test_step_round_trips.py`."""
    asked: Counter[str] = Counter()
    store = await hawser_app.store()
    for name in ("steps", "record_steps", "arrive", "ended"):
        monkeypatch.setattr(store, name, _counting(name, getattr(store, name), asked))
    label = hawser_app.task(name="label")(lambda: 1)

    async def one() -> int:
        return 1

    @hawser_app.task
    async def order(ctx: Context, turns: int) -> int:
        for n in range(turns):
            await ctx.step(f"turn {n}", one)
        if turns == 2:
            return 0
        await ctx.sleep("cool off", hours=1)
        for n in range(turns):
            await ctx.step(f"later turn {n}", one)
        await ctx.wait_for("packed", timeout=60)
        return sum(await ctx.gather(label.job(), label.job()))

    await order.aenqueue(2)
    await hawser_app.adrain()
    assert asked == {"record_steps": 2}, "a first run has nothing to read"
    asked.clear()
    await order.aenqueue(20)
    await hawser_app.adrain()
    assert asked == {"record_steps": 41, "steps": 1, "arrive": 1}, "the second run is held at the event"
    asked.clear()
    await hawser_app.aemit("packed", 1)
    await hawser_app.adrain()
    assert asked == {"steps": 2, "arrive": 2, "ended": 1}, "what the event said; then what the two jobs came to, together"


def _counting(name: str, work: Any, asked: Counter[str]) -> Any:
    async def counting(*arguments: Any) -> Any:
        asked[name] += 1
        return await work(*arguments)

    return counting


def test_an_event_lets_a_job_go_on_and_its_timeout_comes_by_the_clock(hawser_app: AppUnderTest):
    @hawser_app.task
    def ship(ctx: SyncContext, order: int) -> str:
        try:
            return f"{ctx.wait_for(f'packed:{order}', timeout=7 * 86_400)} parcels"
        except EventTimeout:
            return "refunded"

    first, second = ship.enqueue(1), ship.enqueue(2)
    assert hawser_app.drain().done == 0
    hawser_app.emit("packed:1", 2)
    assert hawser_app.drain().done == 1
    hawser_app.advance(7 * 86_400 + 1)
    assert hawser_app.drain().done == 1
    assert [hawser_app.get(handle.id).result for handle in (first, second)] == ["2 parcels", "refunded"]


def test_a_group_keeps_its_strict_order_though_its_first_job_is_retried(hawser_app: AppUnderTest):
    posted: list[str] = []

    @hawser_app.task(group="account", limit=Limit(running=1, per_group=True, ordered=True), backoff=Fixed(every=60))
    def post(ctx: Context, account: str, entry: int) -> None:
        if (account, entry) == ("ann", 1) and ctx.attempt == 1:
            raise ConnectionError("the ledger is away")
        posted.append(f"{account} {entry}")

    for entry in (1, 2):
        post.enqueue("ann", entry)
        post.enqueue("bob", entry)
    assert hawser_app.drain().runs == 5
    assert posted == ["bob 1", "bob 2", "ann 1", "ann 2"]
    with hawser_app.inline():
        post.enqueue("ann", 3)
    assert posted[-1] == "ann 3"
