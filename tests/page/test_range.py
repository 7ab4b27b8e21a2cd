"""The time that charts are of: drawn over a chart or chosen, in the address, and the same on the way to another screen."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

from tests.page.conftest import Served
from tests.page.test_flows import enqueue

LEFT, RIGHT = 62, 8
"""Pixels of a chart beside its drawing."""

OWN = re.compile(r"\d \W ")
"""The button that has a time of one's own: from a point, a dash, to another."""


def window(tab: Page) -> tuple[datetime, datetime | None]:
    """What the address says."""
    given = parse_qs(urlsplit(tab.url).query)
    until = given.get("until")
    return datetime.fromisoformat(given["since"][0]), None if until is None else datetime.fromisoformat(until[0])


def draw(tab: Page, chart: Locator, first: float, last: float) -> None:
    """Over the chart, from one share of its width to another."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    wide, high = box["width"] - LEFT - RIGHT, box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + LEFT + first * wide, high)
    tab.mouse.down()
    tab.mouse.move(box["x"] + LEFT + (first + last) / 2 * wide, high)
    expect(chart.locator(".drawn")).to_have_count(1)
    tab.mouse.move(box["x"] + LEFT + last * wide, high)
    tab.mouse.up()


def test_a_stretch_that_is_drawn_over_a_chart_becomes_the_time_of_all(tab: Page, place: Served):
    enqueue(place.app, 3)
    tab.goto(place.ui())
    with tab.expect_response(lambda answer: "/overview?since=" in answer.url) as asked:
        draw(tab, tab.locator(".plot svg").first, 0.25, 0.5)
    since, until = window(tab)
    assert until is not None
    assert timedelta(minutes=14) <= until - since <= timedelta(minutes=18)
    assert (since.second, until.second) == (0, 0)
    series = asked.value.json()["series"]
    assert len(series["enqueued"]) == (until - since) / timedelta(minutes=1)
    assert datetime.fromisoformat(series["start"]) == since
    tab.get_by_role("table", name="Queues").get_by_role("link", name="mail").click()
    expect(tab.get_by_role("heading", name="In and out")).to_be_visible()
    assert window(tab) == (since, until)
    tab.get_by_role("button", name="6 h").click()
    expect(tab).not_to_have_url(re.compile("since"))
    tab.go_back()
    expect(tab.get_by_role("button", name=OWN)).to_have_attribute("aria-pressed", "true")


def test_a_stretch_up_to_the_newest_minute_goes_on_to_the_present(tab: Page, place: Served):
    enqueue(place.app)
    tab.goto(place.ui("queues/mail"))
    draw(tab, tab.locator(".plot svg").first, 0.5, 1.0)
    expect(tab.get_by_role("button", name=re.compile("now$"))).to_have_attribute("aria-pressed", "true")
    _, until = window(tab)
    assert until is None


def test_a_time_is_chosen_and_one_that_cannot_be_is_refused(tab: Page, place: Served):
    tab.goto(place.ui())
    tab.get_by_role("button", name="Own").click()
    now = datetime.now(UTC).astimezone().replace(second=0, microsecond=0, tzinfo=None)
    first, last = now - timedelta(hours=3), now - timedelta(hours=2)
    tab.get_by_label("From").fill(first.isoformat(timespec="minutes"))
    tab.get_by_label("Until").fill((first - timedelta(minutes=5)).isoformat(timespec="minutes"))
    tab.get_by_role("button", name="Show", exact=True).click()
    expect(tab.get_by_text("it is not after From")).to_be_visible()
    tab.get_by_label("Until").fill(last.isoformat(timespec="minutes"))
    tab.get_by_role("button", name="Show", exact=True).click()
    expect(tab.get_by_role("button", name=OWN)).to_have_attribute("aria-pressed", "true")
    assert window(tab) == (first.astimezone(), last.astimezone())


def test_a_click_on_a_chart_leaves_its_time(tab: Page, place: Served):
    tab.goto(place.ui())
    tab.locator(".plot svg").first.click()
    expect(tab.get_by_role("button", name="1 h")).to_have_attribute("aria-pressed", "true")
    tab.goto(place.ui("?since=yesterday"))
    expect(tab.get_by_role("button", name="1 h")).to_have_attribute("aria-pressed", "true")
