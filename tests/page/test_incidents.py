"""A queue falls behind for each reason in turn: the first screen and the queue's own name the right one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, expect

from hawser import Hawser
from hawser.limit import Limit
from hawser.outcome import Done, Failed, Failure
from hawser.store import Actor, Beat, Settlement, Share, Store, Target
from hawser.store.rollup import Measured, bucket_of
from hawser.testing.clock import ManualClock
from tests.api.conftest import make_app
from tests.page.conftest import served, watched
from tests.page.test_screens import run

IDLE = Beat(worker="w1@vm1", host="vm1", pid=7, version="1", queues=("mail",), slots=4, running=1)
BUSY = replace(IDLE, running=4)

Incident = Callable[[Hawser, Store, ManualClock], Awaitable[Any]]


async def enqueue(app: Hawser, count: int, **options: Any) -> None:
    task = app.tasks["send_email"].using(**options) if options else app.tasks["send_email"]
    await app.aenqueue_many([task.job(to=f"user{number}") for number in range(count)])


async def end(store: Store, count: int, outcome: Done | Failed) -> None:
    """As many runs as that, each a moment long."""
    claimed = await store.claim([Share("mail")], count, "w1@vm1", 600.0)
    assert len(claimed) == count
    await store.settle([Settlement(job.id, job.lease, outcome) for job in claimed])


async def ran(store: Store, seconds: float) -> None:
    await store.measure([Measured("mail", "send_email", "run", bucket_of(seconds), 50)])


async def paused(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    await app.apause(queue="mail", reason="the mail server is down", by="ann")
    clock.advance(240)
    await store.beat([IDLE])


async def without_workers(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    clock.advance(240)


async def lost(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    await store.beat([IDLE, replace(IDLE, worker="w2@vm2", host="vm2")])
    clock.advance(240)
    await store.beat([IDLE])


async def limited(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    await store.set_limit(Target("queue", "mail"), Limit(running=1), Actor("ann"))
    await store.claim([Share("mail")], 4, "w1@vm1", 600.0)
    clock.advance(240)
    await store.beat([IDLE])


async def rated(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    await store.set_limit(Target("queue", "mail"), Limit(rate="2/h"), Actor("ann"))
    await store.claim([Share("mail")], 4, "w1@vm1", 600.0)
    clock.advance(240)
    await store.beat([IDLE])


async def broken(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    await store.open_breaker("send_email", Actor("ann"))
    clock.advance(240)
    await store.beat([IDLE])


async def busy(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    clock.advance(240)
    await store.beat([BUSY])


async def slower(app: Hawser, store: Store, clock: ManualClock) -> None:
    await ran(store, 0.09)
    clock.advance(30 * 60)
    await enqueue(app, 29)
    await end(store, 25, Done())
    await ran(store, 2.4)
    clock.advance(240)
    await store.beat([BUSY])


async def more(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 20)
    await end(store, 20, Done())
    clock.advance(30 * 60)
    await enqueue(app, 300)
    clock.advance(240)
    await store.beat([BUSY])


async def failing(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 40)
    clock.advance(30 * 60)
    await end(store, 25, Failed(Failure("TimeoutError: no answer")))
    await store.beat([BUSY])


async def others_first(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5)
    clock.advance(200)
    await app.aenqueue("anything", {})
    clock.advance(40)
    await store.beat([replace(BUSY, queues=("default", "mail"))])


async def later(app: Hawser, store: Store, clock: ManualClock) -> None:
    await enqueue(app, 5, delay=3600)
    await store.beat([IDLE])


REASONS: dict[str, tuple[Incident, str, str]] = {
    "paused": (paused, "Paused", "the queue is paused by ann: the mail server is down"),
    "no worker": (without_workers, "Workers", "no living worker serves queue mail"),
    "a lost worker": (lost, "Lost workers", "1 worker with 4 slots lost on vm2"),
    "a limit": (limited, "Limits, breakers", "queue mail runs 1 of 1 at once"),
    "a rate": (rated, "Limits, breakers", "its limit of 2/h (set by ann) keeps 3 jobs back"),
    "a breaker": (broken, "Limits, breakers", "the breaker of task send_email is open"),
    "busy slots": (busy, "Slots", "all 4 slots are busy"),
    "longer runs": (slower, "Run time", "jobs (send_email) take"),
    "more comes in": (more, "More comes in", "/min, most of them send_email"),
    "failures": (failing, "Failures", "100 % of its attempts fail"),
    "others first": (others_first, "Others go first", "the same workers take queue default first, which has 1 due job"),
    "due later": (later, "Due later", "mail is not behind: 5 jobs wait for their time, and none is due"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_headline_names_the_reason(browser: Browser, store: str, reason: str):
    incident, check, words = REASONS[reason]
    clock = ManualClock()
    app = make_app(store, clock)

    async def happen() -> None:
        await incident(app, await app.store(), clock)

    run(app, happen)
    faults: list[str] = []
    context = browser.new_context(locale="en-GB")
    with served(make_app(store, clock)) as url:
        tab = watched(context, faults)
        sentence = tab.locator(".status .sentence")
        if reason == "due later":
            tab.goto(f"{url}/ui/queues/mail")
        else:
            tab.goto(f"{url}/ui/")
            expect(sentence).to_contain_text(re.compile(f"^mail is .* behind: .*{re.escape(words)}"))
            failing = tab.get_by_role("table", name="Queues").get_by_text("100 % fail")
            expect(failing).to_have_count(int(reason == "failures"))
            sentence.get_by_role("link").click()
            expect(tab.locator("h1")).to_have_text("mail")
        expect(sentence).to_contain_text(words)
        expect(tab.locator(".checks li.first .badge")).to_contain_text(check)
        context.close()
    assert faults == []
