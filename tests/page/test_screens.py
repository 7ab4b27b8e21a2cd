"""Each screen in a real browser: without data, with some, with hostile data, in both themes and on a phone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, Page, expect

from hawser import Every, Hawser
from hawser.batch import new_batch
from hawser.limit import Limit
from hawser.outcome import Dead, Done, Failed, Failure
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Actor, Beat, Settlement, Share, Target
from tests.docs.documents import ROOT
from tests.page.conftest import Served, watched

T = TypeVar("T")

AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"

SCREENS = {
    "": "Throughput",
    "jobs": "Jobs",
    "dead": "Dead letters",
    "batches": "Batches",
    "queues": "Queues",
    "queues/mail": "Why? Possible reasons",
    "tasks": "Tasks",
    "tasks/send_email": "New job",
    "schedules": "Schedules",
    "workers": "Workers",
    "limits": "Limits and breakers",
    "audit": "Audit",
    "system": "System",
}

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
TOLD = "each => [each.id, each.nodes.slice(0, 3).map(node => [node.html.slice(0, 120), node.any[0]?.message])]"

MARKUP = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'
HOSTILE = f"{MARKUP}\u202e\u0000'\"&lt;{'long' * 400}"
"""Markup, text from right to left, and a word that does not end."""


def fill(app: Hawser, text: str = "no route to host") -> list[str]:
    """Two dead jobs of one kind, one that waits for another attempt, one done, one that runs, some that wait; a worker, a
    schedule, a pause, a limit, an open breaker. The ids of the dead ones."""

    async def work() -> list[str]:
        store = await app.store()
        text_in = text.replace("\0", "")
        for number in range(5):
            await app.aenqueue("send_email", {"to": f"{text_in[:2000]}{number}", "template": "welcome"}, tags=[text_in[:30]])
        claimed = await store.claim([Share("mail")], 5, "w1@vm1", 60.0)
        failure = Failure(f"ConnectionError: {text_in}", f'Traceback\n  File "shop.py", line 3, in send\n{text_in}')
        [first, second, third, fourth, _fifth] = claimed
        await store.settle(
            [
                Settlement(first.id, first.lease, Dead(failure)),
                Settlement(second.id, second.lease, Dead(failure)),
                Settlement(third.id, third.lease, Failed(failure, 300.0)),
                Settlement(fourth.id, fourth.lease, Done(b'{"sent":12345678901234567890}')),
            ]
        )
        for _ in range(3):
            await app.aenqueue("anything", {"any": [1, {"deep": text_in[:100]}]})
        await store.beat([Beat(worker="w1@vm1", host=text_in[:60], pid=7, version="1", queues=("mail",), slots=4, running=1)])
        nightly = Definition(name="nightly", rule_text=text_of(Every(days=1)), task="charge")
        await store.fire([create(nightly, (await store.due_schedules(0)).now, declared=True)])
        await app.apause(queue="default", reason=text_in[:200])
        await store.set_limit(Target("queue", "mail"), Limit(running=4, rate="100/m", max_depth=50), Actor(text_in[:30]))
        await store.open_breaker("charge", Actor(text_in[:30]))
        return [first.id, second.id]

    return run(app, work)


def fill_batches(app: Hawser, text: str) -> str:
    """One with two jobs and `then` that is left open, one without jobs that is done. The id of the first."""

    async def work() -> str:
        store = await app.store()
        left = new_batch(name=text.replace("\0", "")[:100], then=app.tasks["charge"].job(), on_dead=app.tasks["charge"].job())
        await store.open_batch(left)
        await app.aenqueue_many([app.tasks["anything"].job(row=row).of_batch(left.id) for row in range(2)])
        async with app.batch("nothing to do", then=app.tasks["charge"].job()):
            pass
        return left.id

    return run(app, work)


def run(app: Hawser, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """In a thread of its own: the browser has the loop of this one."""

    async def closed() -> T:
        try:
            return await work()
        finally:
            await app.aclose()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(closed())).result(30)


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_without_data_says_what_to_do(tab: Page, place: Served, screen: str):
    tab.goto(place.ui(screen))
    expect(tab.locator("main")).to_contain_text(SCREENS[screen])
    expect(tab.locator(".loading")).to_have_count(0)
    expect(tab.locator(".fault")).to_have_count(0)


@pytest.mark.parametrize("text", ["no route to host", HOSTILE], ids=["plain", "hostile"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_screen_shows_data_as_text(browser: Browser, place: Served, theme: Any, text: str):
    dead, _ = fill(place.app, text)
    batch = fill_batches(place.app, text)
    faults: list[str] = []
    context = browser.new_context(locale="en-GB", color_scheme=theme, viewport={"width": 1280, "height": 900})
    tab = watched(context, faults)
    tab.goto(place.ui("dead"))
    group = tab.get_by_role("link", name="ConnectionError").first.get_attribute("href")
    further = {str(group).partition("/ui/")[2]: "in common", f"batches/{batch}": "Its producer has not closed it"}
    for screen, words in {**SCREENS, f"jobs/{dead}": "Timeline", **further}.items():
        tab.goto(place.ui(screen))
        expect(tab.locator("main")).to_contain_text(words)
        expect(tab.locator(".loading")).to_have_count(0)
        expect(tab.locator(".fault")).to_have_count(0)
        assert "owned" not in tab.title()
        assert tab.locator("main img, main script").count() == 0
        assert_accessible(tab, screen)
    context.close()
    assert faults == []


def assert_accessible(tab: Page, screen: str) -> None:
    """axe-core, all rules of WCAG 2 A and AA. It is given to the page as a script of the browser: the policy would refuse it."""
    session = tab.context.new_cdp_session(tab)
    session.send("Runtime.evaluate", {"expression": AXE.read_text()})
    script = f"axe.run(document, {{runOnly: {list(RULES)}}}).then(found => JSON.stringify(found.violations.map({TOLD})))"
    found = session.send("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True})
    assert found["result"].get("value") == "[]", f"{screen}: {found}"
    session.detach()


@pytest.mark.parametrize("screen", [*SCREENS, "job", "group", "batch"])
def test_on_a_phone_nothing_sticks_out(browser: Browser, place: Served, screen: str):
    dead, _ = fill(place.app, HOSTILE)
    batch = fill_batches(place.app, HOSTILE)
    path, words = {
        "job": (f"jobs/{dead}", "Timeline"),
        "group": ("dead", "Newest jobs of the group"),
        "batch": (f"batches/{batch}", "Its producer"),
    }.get(screen, (screen, SCREENS.get(screen, "")))
    faults: list[str] = []
    context = browser.new_context(locale="en-GB", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab = watched(context, faults)
    tab.goto(place.ui(path))
    if screen == "group":
        tab.get_by_role("table", name="Groups of dead letters").get_by_role("link", name="ConnectionError").click()
        expect(tab.get_by_role("heading", name="What they have in common")).to_be_visible()
        expect(tab.get_by_role("button", name="Try one")).to_be_visible()
    expect(tab.locator("main")).to_contain_text(words)
    expect(tab.locator(".loading")).to_have_count(0)
    width = tab.evaluate("document.documentElement.scrollWidth")
    expect(tab.get_by_role("navigation", name="Screens")).to_be_visible()
    context.close()
    assert faults == []
    assert width <= 390


def test_the_job_page_tells_its_life_and_keeps_numbers_exact(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?state=done"))
    tab.get_by_role("table", name="Jobs").get_by_role("link", name=re.compile("…")).first.click()
    expect(tab.locator("main")).to_contain_text("12345678901234567890")
    expect(tab.locator(".legend")).to_contain_text("attempt #1, done")


def test_a_link_shows_what_it_showed(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?state=dead&task=send_email"))
    rows = tab.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(tab.get_by_label("Search jobs")).to_have_value("state:dead task:send_email")
    tab.get_by_role("link", name="retrying").click()
    expect(rows).to_have_count(1)
    tab.go_back()
    expect(rows).to_have_count(2)


def test_a_search_is_read_or_its_fault_is_told(tab: Page, place: Served):
    dead, _ = fill(place.app)
    tab.goto(place.ui("jobs"))
    search = tab.get_by_label("Search jobs")
    search.fill("stat:dead")
    search.press("Enter")
    expect(tab.get_by_role("alert")).to_contain_text("write name:value with one of state, task")
    search.fill("task:anything")
    search.press("Enter")
    expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(3)
    search.fill(dead)
    search.press("Enter")
    expect(tab.locator("h1")).to_contain_text(dead[-8:])


def test_jobs_are_found_by_an_argument(tab: Page, place: Served):
    fill(place.app)

    async def another() -> str:
        return (await place.app.aenqueue("send_email", {"to": "ann", "template": "farewell you"})).id

    id = run(place.app, another)
    tab.goto(place.ui("jobs?arg.template=welcome"))
    rows = tab.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(5)
    search = tab.get_by_label("Search jobs")
    expect(search).to_have_value("arg:template=welcome")
    search.fill('arg.template:"farewell you"')
    search.press("Enter")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").first.click()
    expect(tab.locator("h1")).to_contain_text(id[-8:])
    tab.get_by_role("link", name="template=farewell you").click()
    expect(rows).to_have_count(1)


def test_a_batch_is_closed_and_another_cancelled(tab: Page, place: Served):
    """Its jobs are a click away, and what it releases is shown with its state."""

    async def work() -> list[str]:
        store = await place.app.store()
        made = []
        for name in ("left open", "wrong file"):
            batch = new_batch(name=name, then=place.app.tasks["charge"].job())
            await store.open_batch(batch)
            await place.app.aenqueue_many([place.app.tasks["anything"].job(row=row).of_batch(batch.id) for row in range(3)])
            made.append(batch.id)
        return made

    left, wrong = run(place.app, work)
    tab.goto(place.ui("batches"))
    rows = tab.get_by_role("table", name="Batches").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("0 of 3 ended")
    tab.get_by_role("link", name="left open").click()
    expect(tab.locator("main")).to_contain_text("held")
    tab.get_by_role("button", name="Close").click()
    tab.get_by_role("button", name="Close the batch").click()
    expect(tab.locator("main")).to_contain_text("3 jobs of 3 have not ended")
    tab.get_by_role("link", name="Its jobs").click()
    expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(3)
    expect(tab.get_by_label("Search jobs")).to_have_value(f"batch:{left}")
    tab.goto(place.ui(f"batches/{wrong}"))
    tab.get_by_role("button", name="Cancel").click()
    tab.get_by_role("button", name="Cancel the batch").click()
    expect(tab.locator("main")).to_contain_text("All 3 jobs have ended")
    expect(tab.locator("main")).to_contain_text("It was cancelled")
    tab.goto(place.ui("batches?state=cancelled"))
    expect(rows).to_have_count(1)
    tab.goto(place.ui("audit"))
    tab.get_by_role("link", name=wrong).click()
    expect(tab.locator("h1")).to_contain_text("wrong file")


def test_the_dead_jobs_of_a_batch_run_again(tab: Page, place: Served):
    async def work() -> str:
        store = await place.app.store()
        batch = new_batch(name="invoices")
        await store.open_batch(batch)
        await place.app.aenqueue_many([place.app.tasks["anything"].job(row=row).of_batch(batch.id) for row in range(5)])
        claimed = await store.claim([Share("default")], 3, "w1@vm1", 60.0)
        gone = Dead(Failure("ValueError: no", ""))
        await store.settle([Settlement(job.id, job.lease, gone) for job in claimed])
        return batch.id

    batch = run(place.app, work)
    tab.goto(place.ui(f"batches/{batch}"))
    tab.get_by_role("button", name="Retry the 3 failed …").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("Run again 3 jobs?")
    dialog.get_by_role("button", name="Run again").click()
    expect(tab.locator(".operation")).to_contain_text("3 jobs in all, done")
    expect(tab.get_by_role("button", name="Retry the")).to_have_count(0)
    expect(tab.locator(".fields div", has_text="Waiting")).to_contain_text("5")


def test_an_unknown_screen_and_job_are_told(tab: Page, place: Served):
    tab.goto(place.ui("nothing/here"))
    expect(tab.locator("main")).to_contain_text("There is no such screen")
