"""Nothing is cut off at 1280 pixels: tables and rows of tabs have room for the names and figures of a shop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from hawser import Every, Hawser
from hawser.limit import Limit
from hawser.outcome import Dead, Done, Failed, Failure
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Actor, Beat, Settlement, Share, Target
from hawser.store.rollup import Measured
from tests.page.conftest import Served, served, watched
from tests.page.test_screens import run

QUEUES = {"payments": "charge_card", "mail": "send_order_confirmation", "images": "resize_picture", "webhooks": "deliver_webhook"}
WORKERS = ("shop-worker-7d9f8b6c5-19700-cfb6ff", "shop-worker-5c4d7f9b8-20114-a81e02")
SCREENS = (
    "",
    "jobs",
    "dead",
    "batches",
    "queues",
    "queues/payments",
    "tasks",
    "schedules",
    "workers",
    "limits",
    "audit",
    "system",
)
BOXES = "main .scroll, main .tabs, main table, main .card"
CUT_OFF = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.className || each.ariaLabel)"

BY_PLACE = "all => all.toSorted((a, b) => a.offsetTop - b.offsetTop).map(each => each.classList[0])"


def app_of(store: str) -> Hawser:
    app = Hawser(store)
    for queue, name in QUEUES.items():

        def work(order: int = 0, **_: Any) -> None: ...

        app.task(queue=queue, name=name, max_attempts=5)(work)
    return app


@pytest.fixture
def shop(store: str) -> Iterator[Served]:
    """Every queue has jobs in all states, and its task figures of many digits."""
    own = app_of(store)
    run(own, lambda: open_shop(own))
    with served(app_of(store)) as url:
        yield Served(own, url)
    own.close()


async def open_shop(app: Hawser) -> None:
    store = await app.store()
    failure = Failure("SMTPServerDisconnected: Connection unexpectedly closed by mx3.example.com", "Traceback\n")
    for (queue, task), worker in zip(QUEUES.items(), WORKERS * 2, strict=True):
        await app.aenqueue_many([app.tasks[task].job(order=number) for number in range(1250)])
        [dead, failed, *done] = (await store.claim([Share(queue)], 120, worker, 3600.0))[:-3]
        away = [Settlement(dead.id, dead.lease, Dead(failure)), Settlement(failed.id, failed.lease, Failed(failure, 300.0))]
        await store.settle([*away, *(Settlement(each.id, each.lease, Done(b"{}")) for each in done)])
        await store.measure([Measured(queue, task, kind, 14, 100) for kind in ("run", "wait")])
        await store.set_limit(Target("queue", queue), Limit(running=40, rate="1000/m", max_depth=50_000), Actor("operator"))
        await store.open_breaker(task, Actor("operator"))
    for number, worker in enumerate(WORKERS):
        beat = Beat(
            worker=worker, host="shop-worker", pid=19_722 + number, version="0.1.0", queues=tuple(QUEUES), slots=32, running=32
        )
        await store.beat([beat])
    nightly = Definition(name="send_weekly_digest", rule_text=text_of(Every(days=1)), task="send_order_confirmation")
    await store.fire([create(nightly, (await store.due_schedules(0)).now, declared=True)])
    await app.apause(queue="webhooks", reason="the partner is down until noon")
    await app.apause(task="deliver_webhook", reason="the partner is down until noon")
    async with app.batch("monthly invoices of all customers"):
        pass


@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_is_cut_off_at_1280_pixels(shop: Served, tab: Page, screen: str):
    tab.goto(shop.ui(screen))
    expect(tab.locator("main").locator("h1, .status").first).to_be_visible()
    expect(tab.locator(".loading")).to_have_count(0)
    if screen == "jobs":
        expect(tab.locator(".tabs .count")).to_have_count(9)
    if screen in {"workers", "queues/payments"}:
        expect(tab.get_by_role("table", name="Running jobs")).to_be_visible()
    assert tab.locator(BOXES).evaluate_all(CUT_OFF) == []


def test_the_controls_of_the_audit_stand_in_one_row(shop: Served, tab: Page):
    tab.goto(shop.ui("audit?by=operator"))
    places = [
        tab.locator("h1"),
        tab.get_by_label("Since"),
        tab.get_by_role("link", name="All records"),
        tab.get_by_role("link", name="JSON"),
    ]
    expect(places[2]).to_be_visible()
    boxes = [place.bounding_box() for place in places]
    middles = [box["y"] + box["height"] / 2 for box in boxes if box]
    assert max(middles) - min(middles) < 8
    assert max(box["height"] for box in boxes if box) < 45


def test_on_a_phone_what_is_wrong_comes_first(browser: Browser, place: Served):
    """No worker has the queue: the second check."""
    run(place.app, lambda: place.app.aenqueue("send_email", {"to": "ann"}))
    faults: list[str] = []
    context = browser.new_context(locale="en-GB", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab = watched(context, faults)
    tab.goto(place.ui("queues/mail"))
    expect(tab.locator(".checks li").first).to_be_visible()
    checks = tab.locator(".checks li").evaluate_all(BY_PLACE)
    assert checks[0] != "fine"
    assert checks == sorted(checks, key=["problem", "notice", "fine"].index)
    context.close()
    assert faults == []


def test_a_schedule_of_seconds_says_how_far_its_next_ticks_reach(shop: Served, tab: Page):
    async def add() -> None:
        store = await shop.app.store()
        now = (await store.due_schedules(0)).now
        often = Definition(name="often", rule_text=text_of(Every(seconds=2)), task="charge_card")
        await store.fire([create(often, now, declared=True)])

    run(shop.app, add)
    tab.goto(shop.ui("schedules?name=often"))
    expect(tab.locator("main")).to_contain_text(re.compile(r"The next 100 ticks, until \d\d:\d\d"))
    expect(tab.locator(".heatmap")).to_have_count(0)
    tab.goto(shop.ui("schedules?name=send_weekly_digest"))
    expect(tab.locator(".heatmap")).to_be_visible()


def test_a_dead_job_names_the_worker_of_its_last_attempt(shop: Served, tab: Page):
    tab.goto(shop.ui("jobs?state=dead&queue=payments"))
    tab.get_by_role("table", name="Jobs").get_by_role("link", name=re.compile("…")).first.click()
    expect(tab.locator(".fields div", has=tab.get_by_text("Worker", exact=True))).to_contain_text(WORKERS[0])
