"""What holds on every screen: below another program's prefix, in the chosen theme, and with single keys switched off."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

from hawser.store.api_key import Role
from tests.api.conftest import make_app
from tests.page.conftest import Served, served, watched
from tests.page.test_flows import UNAUTHORISED, enqueue, figure, key_of
from tests.page.test_screens import fill, run


def test_below_a_prefix_everything_stays_there(browser: Browser, store: str):
    """The page, the API, the stream of events and the cookie of the session; no setting names the prefix."""
    app = make_app(store)
    _, text = key_of(app, Role.OPERATOR)
    faults: list[str] = []
    asked: list[str] = []
    with served(make_app(store), under="/ops/hawser", open=False, require_key=True) as url:
        context = browser.new_context(locale="en-GB")
        context.on("request", lambda request: asked.append(urlsplit(request.url).path))
        tab = watched(context, faults, (UNAUTHORISED,))
        tab.goto(f"{url}/ui/queues/mail")
        tab.get_by_label("API key").fill(text)
        tab.get_by_role("button", name="Log in").click()
        tab.get_by_role("link", name="Overview").click()
        expect(tab.locator("button.live")).to_have_text("Live")
        [cookie] = context.cookies()
        assert cookie["path"] == "/ops/hawser"
        enqueue(app, 3)
        expect(figure(tab, "Waiting")).to_have_text("3")
        tab.get_by_role("link", name="Jobs", exact=True).first.click()
        expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(3)
        tab.reload()
        expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(3)
        context.close()
    assert "/ops/hawser/events" in asked
    assert [path for path in asked if not path.startswith("/ops/hawser/")] == []
    assert faults == []


def test_the_theme_is_chosen_and_kept(tab: Page, place: Served):
    def background() -> str:
        return str(tab.evaluate("() => getComputedStyle(document.body).backgroundColor"))

    tab.goto(place.ui("jobs"))
    tab.get_by_role("button", name="Auto").click()
    expect(tab.locator("html")).to_have_attribute("data-theme", "light")
    light = background()
    tab.get_by_role("button", name="Light").click()
    expect(tab.locator("html")).to_have_attribute("data-theme", "dark")
    dark = background()
    assert dark != light
    tab.reload()
    expect(tab.get_by_role("button", name="Dark")).to_be_visible()
    assert background() == dark


def test_the_button_of_the_theme_says_what_it_is(tab: Page, place: Served):
    tab.goto(place.ui("jobs"))
    button = tab.get_by_role("button", name="Theme: auto", exact=True)
    expect(button).to_have_attribute("title", "Theme: auto (t)")
    button.click()
    expect(tab.get_by_role("button", name="Theme: light", exact=True)).to_have_text("Light")


def test_on_a_phone_every_screen_is_in_reach(browser: Browser, place: Served):
    """Four screens and "More" fit into the bar; the screen that is shown is named in it, wherever it stands."""
    faults: list[str] = []
    context = browser.new_context(locale="en-GB", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab = watched(context, faults)
    tab.goto(place.ui())
    bar = tab.get_by_role("navigation", name="Screens")
    links = bar.get_by_role("link")
    for name in ("Overview", "Queues", "Jobs", "Dead letters"):
        expect(bar.get_by_role("link", name=name, exact=True)).to_be_in_viewport(ratio=1)
    expect(links).to_have_count(4)
    assert bar.evaluate("bar => bar.scrollWidth - bar.clientWidth") == 0
    more = bar.get_by_role("button", name="More screens")
    expect(more).to_be_in_viewport(ratio=1)
    more.click()
    expect(links).to_have_count(11)
    tab.keyboard.press("Escape")
    expect(links).to_have_count(4)
    for name in ("Tasks", "Schedules", "Workers", "Batches", "Limits", "Audit", "System"):
        more.click()
        bar.get_by_role("link", name=name, exact=True).click()
        expect(links).to_have_count(4)
        expect(more).to_contain_text(name)
        expect(more).to_be_in_viewport(ratio=1)
    context.close()
    assert faults == []


def test_single_keys_can_be_switched_off(tab: Page, place: Served):
    tab.goto(place.ui("system"))
    tab.get_by_label("on", exact=True).uncheck()
    tab.keyboard.press("g")
    tab.keyboard.press("j")
    tab.keyboard.press("p")
    expect(tab.locator("h1")).to_have_text("System")
    expect(tab.locator("button.live")).to_have_text("Live")
    tab.get_by_label("on", exact=True).check()
    tab.locator("h1").click()
    tab.keyboard.press("g")
    tab.keyboard.press("j")
    expect(tab.locator("h1")).to_have_text("Jobs")


def test_times_are_told_and_taken_in_utc_when_asked_for(browser: Browser, place: Served):
    fill(place.app)
    faults: list[str] = []
    context = browser.new_context(locale="en-GB", timezone_id="Asia/Kolkata")
    tab = watched(context, faults)
    tab.goto(place.ui("audit?since=2026-01-31T12:00:00Z"))
    since = tab.get_by_label("Since")
    expect(since).to_have_value("2026-01-31T17:30")
    tab.get_by_role("button", name="Times: local").click()
    expect(since).to_have_value("2026-01-31T12:00")
    since.fill("2026-02-01T00:00")
    expect(tab).to_have_url(re.compile("since=2026-02-01T00%3A00"))
    tab.goto(place.ui())  # and the browser remembers it
    expect(tab.get_by_role("button", name="Times: UTC")).to_have_text("UTC")
    newest = tab.locator(".plot .legend li").first
    told = newest.inner_text()
    tab.keyboard.press("u")
    expect(tab.get_by_role("button", name="Times: local")).to_be_visible()
    expect(newest).not_to_have_text(told)
    context.close()
    assert faults == []


def test_the_worst_trouble_is_told_on_every_screen(tab: Page, place: Served):
    fill(place.app)
    for screen in ("jobs", "system", "workers"):
        tab.goto(place.ui(screen))
        expect(tab.locator(".trouble")).to_contain_text("the queue is paused by app")
    tab.locator(".trouble").get_by_role("link").click()
    expect(tab.get_by_role("heading", name="default")).to_be_visible()
    expect(tab.locator(".status .sentence")).to_contain_text("paused")
    expect(tab.locator(".trouble")).to_have_count(0)
    tab.goto(place.ui())
    expect(tab.locator(".status .sentence")).to_contain_text("the queue is paused by app")
    expect(tab.locator(".trouble")).to_have_count(0)
    run(place.app, lambda: place.app.aresume(queue="default"))
    tab.goto(place.ui("jobs"))
    expect(tab.locator(".trouble")).not_to_contain_text("paused")


def test_running_jobs_are_counted_once_and_in_one_way(tab: Page, place: Served):
    """What workers said of themselves some seconds ago does not stand beside what the store counts now."""
    fill(place.app)
    tab.goto(place.ui())
    running = tab.locator("a.figure", has=tab.get_by_text("Running", exact=True))
    expect(running.locator(".value")).to_have_text("1")
    expect(running.locator(".hint")).to_have_text("of 4 slots")
