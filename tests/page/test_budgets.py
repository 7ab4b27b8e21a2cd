"""What a page may cost: requests of every screen, of ten tabs, and the time until its figures are there."""

from __future__ import annotations

from threading import Event, Thread

import pytest
from playwright.sync_api import Browser, Page, expect

from hawser import Hawser
from tests.api.conftest import make_app
from tests.page.conftest import Served, watched
from tests.page.test_flows import figure
from tests.page.test_screens import SCREENS, fill, run

SECONDS = 5
BEFORE_FIGURES = 8
"""Requests until the first figures are there: the page, its parts, who asks, and what there is to see."""
PARTS = 6
"""The screens are looked at in so many tests: most of it is waiting, which can be done side by side."""


class Busy:
    """A producer, so that something changes all the time."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._stop = Event()
        self._thread = Thread(target=self._work, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(15)

    def _work(self) -> None:
        app: Hawser = make_app(self._store)
        while not self._stop.wait(0.1):
            app.enqueue("anything", {})
        app.close()


def seen_by(tab: Page, seconds: float) -> list[str]:
    """What a tab asks for in that time."""
    asked: list[str] = []

    def note(request: object) -> None:
        asked.append(str(getattr(request, "url", "")))

    tab.on("request", note)
    tab.wait_for_timeout(seconds * 1000)
    tab.remove_listener("request", note)
    return asked


@pytest.mark.parametrize("part", range(PARTS))
def test_no_screen_asks_more_than_once_a_second(tab: Page, place: Served, store: str, part: int):
    dead, _ = fill(place.app)
    job = run(place.app, lambda: place.app.aenqueue("anything", {}))
    tab.goto(place.ui("dead"))
    group = str(tab.get_by_role("link", name="ConnectionError").first.get_attribute("href")).partition("/ui/")[2]
    screens = (*SCREENS, f"jobs/{dead}", f"jobs/{job.id}", group, "tasks/send_email", "jobs?tag=no&state=dead,done")
    with Busy(store):
        for screen in screens[part::PARTS]:
            tab.goto(place.ui(screen))
            expect(tab.locator("button.live")).to_have_text("Live")
            expect(tab.locator(".loading")).to_have_count(0)
            tab.wait_for_timeout(1000)
            asked = seen_by(tab, SECONDS)
            assert len(asked) <= SECONDS + 1, (screen, asked)


def test_ten_tabs_ask_for_less_than_twice_what_one_does(browser: Browser, place: Served, store: str):
    fill(place.app)
    context = browser.new_context(locale="en-GB")
    faults: list[str] = []
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    with Busy(store):
        tabs = [watched(context, faults)]
        tabs[0].goto(place.ui())
        expect(tabs[0].locator("button.live")).to_have_text("Live")
        tabs[0].wait_for_timeout(2000)
        asked.clear()
        tabs[0].wait_for_timeout(SECONDS * 1000)
        one = len(asked)
        for _ in range(9):
            tabs.append(watched(context, faults))
            tabs[-1].goto(place.ui())
            expect(tabs[-1].locator("button.live")).to_have_text("Live")
        tabs[0].wait_for_timeout(2000)
        asked.clear()
        tabs[0].wait_for_timeout(SECONDS * 1000)
        ten = len(asked)
        waiting = figure(tabs[-1], "Waiting").inner_text()
        expect(figure(tabs[-1], "Waiting")).not_to_have_text(waiting)  # and it is fresh
    context.close()
    assert faults == []
    assert 1 <= one <= SECONDS + 1
    assert ten <= 2 * one, (one, ten)


def test_when_the_tab_with_the_stream_goes_another_takes_it(browser: Browser, place: Served):
    context = browser.new_context(locale="en-GB")
    faults: list[str] = []
    first, second = watched(context, faults), watched(context, faults)
    for tab in (first, second):
        tab.goto(place.ui())
        expect(tab.locator("button.live")).to_have_text("Live")
    first.close()
    run(place.app, lambda: place.app.aenqueue("anything", {}))
    expect(figure(second, "Waiting")).to_have_text("1", timeout=4000)  # sooner than a poll would tell
    context.close()
    assert faults == []


def test_figures_are_there_after_few_requests(browser: Browser, place: Served):
    """What makes them slow is requests that wait for each other; the time they take is measured by `benchmarks/page.py`."""
    fill(place.app)
    context = browser.new_context(locale="en-GB")
    tab = context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url.removeprefix(place.url)))
    tab.goto(place.ui(), wait_until="commit")
    tab.locator("a.figure .value").first.wait_for()
    context.close()
    assert len(asked) <= BEFORE_FIGURES, asked
