"""Jobs that belong together in `hawser_app.inline()`: what is released runs at once, too."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hawser import Context, Drop, Fixed, Snooze, SyncContext
from hawser.testing import AppUnderTest


def states(app: AppUnderTest) -> set[str]:
    return {str(job.state) for job in app.enqueued()}


def test_the_job_behind_a_batch_runs_when_the_batch_ends(hawser_app: AppUnderTest):
    sent: list[str] = []

    @hawser_app.task
    def send(to: str) -> None:
        sent.append(to)

    @hawser_app.task
    def report(campaign: int) -> str:
        return f"{campaign}: {len(sent)}"

    with hawser_app.inline(), hawser_app.batch("campaign", then=report.job(7)) as batch:
        batch.add(send.job("ann"), send.job("bob"))
        assert sent == ["ann", "bob"]
        assert hawser_app.enqueued(report)[0].state == "ready"
    assert hawser_app.enqueued(report)[0].result == "7: 2"


def test_the_job_behind_a_death_runs_and_the_error_is_raised_afterwards(hawser_app: AppUnderTest):
    @hawser_app.task(max_attempts=1)
    def send(to: str) -> None:
        if to == "ann":
            raise ConnectionError("no such host")

    @hawser_app.task
    def alert(campaign: int) -> None: ...

    with hawser_app.inline():
        batch = hawser_app.batch("campaign", on_dead=alert.job(7))
        with batch, pytest.raises(ConnectionError):
            batch.add(send.job("ann"), send.job("bob"))
    assert [(job.task, str(job.state)) for job in hawser_app.enqueued()] == [
        ("alert", "done"),
        ("send", "dead"),
        ("send", "done"),
    ]


def test_a_job_runs_behind_those_that_it_waits_for(hawser_app: AppUnderTest):
    order: list[str] = []

    @hawser_app.task
    def part(name: str) -> None:
        order.append(name)

    @hawser_app.task
    def merge() -> None:
        order.append("merge")

    early = part.enqueue("early")
    parts = [part.job(name) for name in "ab"]
    with hawser_app.inline():
        hawser_app.enqueue_many([*parts, merge.job().after(*parts)])
        waits = hawser_app.enqueue_many([merge.job().after(early)])[0]
    assert order == ["a", "b", "merge"]
    assert (str(hawser_app.get(early.id).state), hawser_app.get(waits.id).held) == ("ready", True)
    with hawser_app.inline():
        hawser_app.cancel(early.id)
    assert hawser_app.get(waits.id).state == "cancelled"


def test_what_waited_before_runs_when_a_job_that_runs_inline_releases_it(hawser_app: AppUnderTest):
    @hawser_app.task
    def part() -> None: ...

    @hawser_app.task
    def merge() -> None: ...

    job = part.using(key="the part").job()
    with hawser_app.batch("parts", then=merge.job()) as batch:
        with hawser_app.inline():
            batch.add(job)
        assert hawser_app.enqueued(merge)[0].held
        with hawser_app.inline():
            hawser_app.close_batch(batch.id)
        assert states(hawser_app) == {"done"}


def test_a_parent_goes_on_with_what_it_gathers(hawser_app: AppUnderTest):
    @hawser_app.task
    def label(parcel: int) -> str:
        return f"track-{parcel}"

    @hawser_app.task
    def send(ctx: SyncContext, parcels: int) -> list[str]:
        return ctx.gather(*(label.job(n) for n in range(parcels)))

    with hawser_app.inline():
        assert hawser_app.get(send.enqueue(2).id).result == ["track-0", "track-1"]
    assert states(hawser_app) == {"done"}


async def test_a_parent_gathers_in_an_async_test(hawser_app: AppUnderTest):
    @hawser_app.task
    async def double(n: int) -> int:
        return 2 * n

    @hawser_app.task
    async def total(ctx: Context) -> int:
        await ctx.sleep("first", hours=1)
        return sum(await ctx.gather(double.job(1), double.job(2)))

    with hawser_app.inline():
        handle = await total.aenqueue()
    assert (await hawser_app.aget(handle.id)).result == 6


def test_sleeps_snoozes_and_delayed_children_move_the_clock(hawser_app: AppUnderTest):
    @hawser_app.task
    def later(name: str) -> None: ...

    @hawser_app.task
    def remind(ctx: SyncContext, user: str) -> str:
        ctx.sleep("settle in", days=2)
        if ctx.job.enqueued_at + timedelta(days=2, hours=1) > hawser_app.now:
            raise Snooze(3600)
        ctx.enqueue(later.using(delay=60).job(user))
        return "reminded"

    began = hawser_app.now
    waiting = later.using(delay=600).enqueue("waits for the clock")
    with hawser_app.inline():
        assert hawser_app.get(remind.enqueue("ann").id).result == "reminded"
    assert hawser_app.now - began == timedelta(days=2, hours=1, seconds=60)
    assert hawser_app.get(waiting.id).state == "ready"
    assert hawser_app.drain().runs == 0, "the test has not moved the clock"


def test_a_job_that_waits_for_an_event_goes_on_when_it_comes(hawser_app: AppUnderTest):
    @hawser_app.task
    def ship(ctx: SyncContext, order: int) -> str:
        return f"{ctx.wait_for(f'packed:{order}', timeout=86_400)} parcels"

    with hawser_app.inline():
        first, second = ship.enqueue(1), ship.enqueue(2)
        assert states(hawser_app) == {"ready"}
        hawser_app.emit("packed:1", 2)
        assert hawser_app.get(first.id).result == "2 parcels"
        hawser_app.inside(object()).emit("packed:2", 3)
    assert hawser_app.get(second.id).result == "3 parcels"


def test_a_failed_attempt_is_raised_and_not_made_again(hawser_app: AppUnderTest):
    @hawser_app.task(max_attempts=3, backoff=Fixed(every=5, jitter="none"))
    def broken() -> None:
        raise ConnectionError("no")

    @hawser_app.task
    def fine() -> None: ...

    with hawser_app.inline(), pytest.raises(ConnectionError):
        hawser_app.enqueue_many([broken.job(), fine.job()])
    assert [(job.task, str(job.state), job.attempt) for job in hawser_app.enqueued()] == [
        ("broken", "ready", 1),
        ("fine", "done", 1),
    ]
    assert hawser_app.drain().runs == 2


def test_an_inline_run_that_has_no_end_is_stopped(hawser_app: AppUnderTest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hawser.testing.runner.MOST_RUNS", 20)

    @hawser_app.task
    def poll() -> None:
        raise Snooze(60)

    @hawser_app.task
    def drop() -> None:
        raise Drop("no")

    with hawser_app.inline():
        with pytest.raises(Drop):
            drop.enqueue()
        with pytest.raises(AssertionError, match="20 runs and no end"):
            poll.enqueue()


def test_a_paused_queue_is_left_alone(hawser_app: AppUnderTest):
    @hawser_app.task(queue="mail")
    def send() -> None: ...

    hawser_app.pause(queue="mail")
    with hawser_app.inline():
        send.enqueue()
    assert states(hawser_app) == {"ready"}
