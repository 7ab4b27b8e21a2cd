"""Parts that several screens share: two jobs side by side, marks in charts and charts as tables, files to keep."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from hawser import Hawser
from hawser.job import State
from hawser.store import Share
from hawser.store.rollup import Measured
from hawser.testing.clock import ManualClock
from tests.api.conftest import in_state, make_app
from tests.page.conftest import Served, served, watched
from tests.page.test_screens import fill, run


def test_a_dead_job_is_compared_with_the_last_one_that_worked(tab: Page, place: Served):
    dead, _ = fill(place.app)
    tab.goto(place.ui(f"jobs/{dead}"))
    tab.get_by_role("button", name="Compare with the last one that worked").click()
    expect(tab).to_have_url(re.compile("with="))
    rows = tab.get_by_role("table", name="Arguments compared").locator("tbody tr")
    expect(rows.filter(has_text="template")).to_contain_text("same")
    expect(rows.filter(has_text="differs")).to_have_count(1)
    expect(rows.filter(has_text="differs")).to_contain_text("no route to host")
    tab.get_by_role("button", name="Close").click()
    expect(rows).to_have_count(0)


def test_a_job_that_is_done_is_compared_with_another(tab: Page, place: Served):
    first, second = run(place.app, lambda: done_twice(place.app))
    tab.goto(place.ui(f"jobs/{second}"))
    tab.get_by_role("button", name="Compare with another that worked").click()
    expect(tab).to_have_url(re.compile(f"with={first}"))
    expect(tab.get_by_role("heading", name="Compared with")).to_be_visible()


async def measure(app: Hawser) -> None:
    await (await app.store()).measure([Measured("mail", "send_email", "run", 5, 100)])


async def done_twice(app: Hawser) -> list[str]:
    return [await in_state(app, State.DONE, "anything") for _ in range(2)]


def test_the_timeline_of_a_job_marks_how_long_a_run_takes_as_a_rule(tab: Page, place: Served):
    fill(place.app)
    run(place.app, lambda: measure(place.app))
    [running] = run(place.app, lambda: place.app.afind(state="running")).jobs
    tab.goto(place.ui(f"jobs/{running.id}"))
    expect(tab.locator(".track .usual")).to_have_attribute("title", re.compile(r"as a rule \(p50\)"))


def test_a_chart_has_a_mark_for_a_pause_and_can_be_read_as_a_table(tab: Page, place: Served):
    fill(place.app)
    run(place.app, lambda: place.app.apause(queue="images", reason="too hot", by="ann"))
    tab.goto(place.ui())
    chart = tab.locator("figure.chart").filter(has_text="Throughput")
    expect(chart.locator("svg .at title").filter(has_text="images").first).to_have_count(1)
    chart.get_by_role("button", name="Show as table").click()
    table = chart.get_by_role("region", name="Throughput, table").get_by_role("table")
    expect(table.locator("tbody tr")).to_have_count(60)
    expect(table.locator("thead")).to_contain_text("done")
    chart.get_by_role("button", name="Show as chart").click()
    expect(chart.locator("svg")).to_have_count(1)


def test_a_minute_that_is_not_over_is_no_drop(browser: Browser, store: str):
    clock, faults = ManualClock(), list[str]()
    clock.advance(60 - clock.now() / 1e6 % 60)
    app = make_app(store, clock)

    async def work() -> None:
        for _ in range(3):
            await in_state(app, State.DONE)

    run(app, work)
    with served(make_app(store, clock)) as url:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults)
        chart = tab.locator("figure.chart").filter(has_text="Throughput")
        # How far the line goes, whether there are dots, the sum of the small chart; after so many seconds.
        for seconds, points, dots, done in ((5, 14, 0, 0), (30, 14, 3, 0), (30, 14, 0, 3), (30, 14, 3, 3)):
            clock.advance(seconds)
            tab.goto(f"{url}/ui/?minutes=15")
            expect(chart.locator("polyline.open")).to_have_count(dots)
            assert len(str(chart.locator("polyline:not(.open)").first.get_attribute("points")).split()) == points
            expect(tab.get_by_role("img", name=f"{done} done in 30 minutes")).to_be_visible()
            chart.get_by_role("button", name="Show as table").click()
            expect(chart.locator("tbody tr").first).to_contain_text("so far")
            expect(chart.locator("tbody tr").first).to_contain_text("0" if dots else "\N{EN DASH}")
        context.close()
    app.close()
    assert faults == []


def test_what_is_filtered_is_kept_as_a_file(tab: Page, place: Served):
    dead = set(fill(place.app))
    tab.goto(place.ui("jobs?state=dead"))
    with tab.expect_download() as download:
        tab.get_by_role("link", name="NDJSON").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["id"] for line in lines} == dead
    with tab.expect_download() as download:
        tab.get_by_role("link", name="CSV").click()
    assert len(Path(download.value.path()).read_text(encoding="utf-8").strip().splitlines()) >= 3


def test_what_runs_for_longest_stands_first_beside_what_is_usual(tab: Page, place: Served):
    async def start() -> str:
        store = await place.app.store()
        first = await place.app.aenqueue("anything", {}, priority=9)
        await store.claim([Share("default")], 1, "w1@vm1", 3600.0)
        for _ in range(25):
            await place.app.aenqueue("anything", {})
        await store.claim([Share("default")], 25, "w1@vm1", 3600.0)
        await store.measure([Measured("default", "anything", "run", 12, 100)])
        return first.id

    first = run(place.app, start)
    tab.goto(place.ui("queues/default"))
    rows = tab.get_by_role("table", name="Running jobs").locator("tbody tr")
    expect(rows).to_have_count(20)
    expect(rows.first).to_contain_text(first[-8:])
    expect(rows.first.locator("td[data-name='Usual (p99)']")).to_have_text(re.compile(r"\d+ s"))


def test_a_job_is_late_when_it_ran_for_two_seconds_more_than_usual(tab: Page, place: Served):
    async def start() -> None:
        store = await place.app.store()
        await place.app.aenqueue("anything", {})
        await store.claim([Share("default")], 1, "w1@vm1", 3600.0)
        await store.measure([Measured("default", "anything", "run", 3, 100)])

    run(place.app, start)
    started = datetime.now(UTC)
    tab.clock.set_fixed_time(started + timedelta(seconds=1))
    tab.goto(place.ui("queues/default"))
    usual = tab.get_by_role("table", name="Running jobs").locator("td[data-name='Usual (p99)'] span")
    expect(usual).to_have_text(re.compile(r"\d+ ms"))
    expect(usual).not_to_have_class("warning")
    tab.clock.set_fixed_time(started + timedelta(seconds=10))
    expect(usual).to_have_class("warning")
