"""Nothing is shown as live that is not: a silent worker, a store that is away, a server that stands still, what no hint tells."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from hawser.store import Beat, LeaseRef, Share
from hawser.stores.sqlite import SqliteStore
from hawser.testing import Fault, FaultyStore
from hawser.testing.clock import ManualClock
from tests.api.conftest import make_app
from tests.api.processes import served as serving
from tests.page.conftest import Served, served, watched
from tests.page.test_flows import figure
from tests.page.test_screens import run

REFUSED = "status of 503"


def test_a_worker_that_falls_silent_in_an_idle_store_is_told(browser: Browser, store: str):
    clock = ManualClock()
    app = make_app(store, clock)

    async def beat() -> None:
        beats = [Beat(worker="w1@vm1", host="vm1", pid=7, version="1", queues=("mail",), slots=4, running=0)]
        await (await app.store()).beat(beats)

    run(app, beat)
    faults: list[str] = []
    with served(make_app(store, clock)) as url:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults)
        tab.goto(f"{url}/ui/")
        expect(figure(tab, "Workers")).to_have_text("1")
        expect(tab.locator("button.live")).to_have_text("Live")
        clock.advance(1800)
        expect(figure(tab, "Workers")).to_have_text("0")
        expect(tab.locator(".status")).to_contain_text("1 worker lost")
        context.close()
    assert faults == []


def test_a_store_that_goes_away_is_told_though_nobody_acts(browser: Browser, tmp_path: Path):
    faulty = FaultyStore(SqliteStore(tmp_path / "jobs.db"))
    faults: list[str] = []
    with served(make_app(faulty)) as url:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults, (REFUSED,))
        tab.goto(f"{url}/ui/")
        expect(tab.locator("button.live")).to_have_text("Live")
        expect(tab.locator(".plot svg").last).to_be_visible()
        faulty._chances = {Fault.REFUSE: 1.0}
        expect(tab.get_by_role("alert")).to_contain_text("The store does not answer")
        expect(tab.get_by_role("alert")).to_contain_text(re.compile(r"What is shown is of \d\d:\d\d:\d\d"))
        faulty._chances = {}
        expect(tab.get_by_role("alert")).to_have_count(0)
        context.close()
    assert faults == []


def test_a_server_that_stands_still_is_told_and_found_again(browser: Browser, tmp_path: Path):
    faults: list[str] = []
    with serving(tmp_path) as server:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults)
        tab.goto(f"{server.url}/ui/")
        live = tab.locator("button.live")
        expect(live).to_have_text("Live")
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        try:
            expect(live).to_have_text("Polling", timeout=30_000)
            expect(tab.get_by_role("alert")).to_contain_text("The server does not answer", timeout=30_000)
        finally:
            server.process.send_signal(signal.SIGCONT)
        expect(tab.get_by_role("alert")).to_have_count(0, timeout=30_000)
        expect(live).to_have_text("Live", timeout=30_000)
        context.close()
    assert faults == []


def test_the_progress_of_a_job_moves(tab: Page, place: Served):
    async def start() -> LeaseRef:
        store = await place.app.store()
        await place.app.aenqueue("send_email", {"to": "ann"})
        [job] = await store.claim([Share("mail")], 1, "w1@vm1", 3600.0)
        await store.extend("w1@vm1", [LeaseRef(job.id, job.lease, b'{"done":1}')], 3600.0)
        return LeaseRef(job.id, job.lease)

    lease = run(place.app, start)

    async def go_on() -> None:
        await (await place.app.store()).extend("w1@vm1", [LeaseRef(lease.id, lease.lease, b'{"done":77}')], 3600.0)

    tab.goto(place.ui(f"jobs/{lease.id}"))
    progress = tab.locator(".card", has_text="Progress").last
    expect(progress).to_contain_text("1")
    run(place.app, go_on)
    expect(progress).to_contain_text("77")


def test_what_no_hint_tells_is_looked_at_again_and_a_quiet_tab_stays_cheap(tab: Page, place: Served):
    """The overview of a store in which nothing happens: one question in about eight seconds."""
    tab.goto(place.ui())
    expect(tab.locator("button.live")).to_have_text("Live")
    expect(tab.locator(".plot svg").last).to_be_visible()
    tab.wait_for_timeout(1_500)
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    with tab.expect_request("**/overview?minutes=60&queues=12"):
        pass
    tab.wait_for_timeout(2_000)
    assert asked == ["overview?minutes=60&queues=12"]
