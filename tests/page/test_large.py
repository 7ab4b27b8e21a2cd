"""Many of everything: no screen draws them all, and none is without a way to the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import CDPSession, Page, expect

from hawser import Every, Hawser
from hawser.outcome import Dead, Failure
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Beat, Settlement, Share
from tests.api.conftest import make_app
from tests.page.conftest import Served, served
from tests.page.test_screens import run

JOBS, QUEUES, SCHEDULES, GROUPS, WORKERS = 10_000, 1_000, 600, 500, 300
BATCH, MEMBERS = "a large import", 3_000
ROWS_AT_MOST = 160
"""Rows of all tables of a screen. One table draws 50 at first."""

REFRESHED_WITHIN = 0.05
"""Seconds of the processor for the browser's main thread, the best of five: what the page takes, not the machine besides."""

FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"

SCREENS = {
    "": None,
    "jobs": "Jobs",
    "dead": "Groups of dead letters",
    "queues": "Queues",
    "tasks": None,
    "schedules": "Schedules",
    "workers": "Workers",
    "limits": None,
    "batches": None,
    "audit": None,
    "system": None,
}


def word(number: int) -> str:
    """Of letters: numbers in an error do not make it another kind."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}")


async def fill_large(app: Hawser) -> None:
    task, found = app.tasks["anything"], await app.store()
    await app.aenqueue_many([task.using(queue="dying").job(row=row) for row in range(GROUPS)])
    claimed = await found.claim([Share("dying")], GROUPS, "w1", 60.0)
    ends = [Dead(Failure(f"{word(n)}Error: gone", "")) for n in range(GROUPS)]
    await found.settle([Settlement(job.id, job.lease, end) for job, end in zip(claimed, ends, strict=True)])
    for begin in range(0, JOBS, 1000):
        await app.aenqueue_many([task.using(queue=f"q{row % QUEUES:04}").job(row=row) for row in range(begin, begin + 1000)])
    async with app.batch(BATCH) as batch:
        for begin in range(0, MEMBERS, 1000):
            batch.add(*(task.job(row=row) for row in range(begin, begin + 1000)))
    gone = await found.claim([Share("default")], 200, "w1", 60.0)
    await found.settle([Settlement(job.id, job.lease, Dead(Failure("ValueError: no", ""))) for job in gone])
    await app.aenqueue("anything", {"big": "x" * 60_000})
    now = (await found.due_schedules(0)).now
    rule = text_of(Every(days=1))
    named = [Definition(name=f"s{n:04}", rule_text=rule, task="charge") for n in range(SCHEDULES)]
    await found.fire([create(each, now, declared=False) for each in named])
    workers = [(f"w{n:04}@vm", n) for n in range(WORKERS)]
    await found.beat([Beat(worker=w, host="vm", pid=n, version="1", queues=("mail",), slots=4, running=0) for w, n in workers])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One store for all tests here, which change nothing."""
    store = f"sqlite:///{tmp_path_factory.mktemp('large')}/jobs.db"
    app = make_app(store)
    run(app, lambda: fill_large(app))
    with served(make_app(store)) as url:
        yield Served(app, url)
    app.close()


@pytest.fixture
def place(large: Served) -> Served:
    return large


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_draws_a_part_of_many_rows_and_shows_more_when_asked(tab: Page, place: Served, screen: str):
    tab.goto(place.ui(screen))
    expect(tab.locator("main h1, main .figures").first).to_be_visible()
    expect(tab.locator(".loading")).to_have_count(0)
    assert tab.locator("tbody tr").count() <= ROWS_AT_MOST
    label = SCREENS[screen]
    if label in {"Groups of dead letters", "Queues", "Workers"}:
        rows = tab.get_by_role("table", name=label).locator("tbody tr")
        expect(rows).to_have_count(50)
        tab.get_by_role("button", name="Show more").first.click()
        expect(rows).to_have_count(100)
    if label == "Schedules":
        rows = tab.get_by_role("table", name=label).locator("tbody tr")
        expect(rows.first).to_contain_text("s0000")
        tab.get_by_role("link", name="Next", exact=True).click()
        expect(rows.first).to_contain_text("s0100")


def test_a_schedule_far_down_the_list_is_found_by_its_name(tab: Page, place: Served):
    tab.goto(place.ui("schedules?name=s0555"))
    expect(tab.get_by_role("heading", name="s0555: the next ticks")).to_be_visible()


def test_a_large_payload_is_shown_on_its_job_and_not_in_lists(tab: Page, place: Served):
    tab.goto(place.ui("jobs"))
    tab.get_by_role("table", name="Jobs").get_by_role("link").first.click()
    expect(tab.get_by_text("60 kB")).to_be_visible()
    expect(tab.locator(".tree")).to_contain_text("big")


def work_of(cdp: CDPSession) -> float:
    """Seconds that the main thread of a tab has worked: scripts, layout, paint."""
    found = {str(each["name"]): float(each["value"]) for each in cdp.send("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"]


def refreshed(tab: Page, cdp: CDPSession, path: str) -> float:
    """The work of a look at everything that is shown, such as follows on a pause."""
    tab.keyboard.press("p")
    expect(tab.get_by_role("button", name="Paused")).to_be_visible()
    tab.evaluate(FRAMES)
    before = work_of(cdp)
    with tab.expect_response(lambda answer: answer.url.partition("?")[0].endswith(path)):
        tab.keyboard.press("p")
    tab.evaluate(FRAMES)
    took = work_of(cdp) - before
    expect(tab.get_by_role("button", name="Live")).to_be_visible()
    return took


@pytest.mark.parametrize(
    ("screen", "path"),
    [("", "/overview"), ("queues", "/overview"), ("jobs", "/jobs"), ("workers", "/workers"), ("dead", "/dlq/groups")],
)
def test_a_table_with_many_rows_behind_it_is_refreshed_in_time(tab: Page, place: Served, screen: str, path: str):
    tab.goto(place.ui(screen))
    expect(tab.locator("tbody tr").first).to_be_visible()
    expect(tab.get_by_role("button", name="Live")).to_be_visible()
    cdp = tab.context.new_cdp_session(tab)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    took = [refreshed(tab, cdp, path) for _ in range(5)]
    assert min(took) <= REFRESHED_WITHIN, took


def test_the_page_of_a_large_batch_has_its_figures_and_the_way_to_its_jobs(tab: Page, place: Served):
    tab.goto(place.ui("batches"))
    tab.get_by_role("link", name=BATCH).click()
    expect(tab.locator("main")).to_contain_text("2,800 jobs of 3,000 have not ended")
    expect(tab.get_by_role("button", name="Retry the 200 failed")).to_be_visible()
    assert tab.locator("tbody tr").count() <= ROWS_AT_MOST
    tab.get_by_role("link", name="Its jobs").click()
    expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(50)


def test_a_list_has_fifty_rows_however_many_jobs_there_are(tab: Page, place: Served):
    tab.goto(place.ui("jobs"))
    expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(50)
    expect(tab.locator(".tabs")).to_contain_text("13,501")


def test_the_overview_carries_the_queues_that_it_shows_and_no_others(tab: Page, place: Served):
    with tab.expect_response(lambda answer: "/overview?" in answer.url) as asked:
        tab.goto(place.ui())
    assert len(asked.value.json()["queues"]) == 12
    expect(tab.get_by_role("table", name="Queues").locator("tbody tr")).to_have_count(12)
