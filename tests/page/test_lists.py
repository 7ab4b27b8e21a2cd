"""The list of jobs: counts, the strip, saved views, changes of many; a task and its form; groups that are muted."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from hawser.outcome import Dead, Failure
from hawser.store import Settlement, Share
from tests.page.conftest import Served
from tests.page.test_screens import fill, run


def test_counts_follow_the_filter(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?task=send_email"))
    expect(tab.get_by_role("link", name=re.compile("^dead"))).to_have_text(re.compile("2$"))
    expect(tab.get_by_role("link", name=re.compile("^all"))).to_have_text(re.compile("5$"))
    tab.goto(place.ui("jobs?state=dead,done&task=send_email"))
    expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(3)


def test_a_stretch_of_the_strip_narrows_the_list(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?task=send_email"))
    column = tab.get_by_role("group", name="Over time").get_by_role("button", name=re.compile("5 enqueued"))
    expect(column).to_have_count(1)
    column.click()
    expect(tab).to_have_url(re.compile("since=.*until="))
    expect(tab.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(5)


def test_a_view_is_saved_found_again_and_forgotten(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?state=dead&task=send_email"))
    tab.get_by_role("button", name="Save this view").click()
    tab.get_by_label("Name").fill("dead mail")
    tab.get_by_role("button", name="Save", exact=True).click()
    tab.goto(place.ui("jobs"))
    tab.get_by_role("link", name="dead mail").click()
    expect(tab.get_by_label("Search jobs")).to_have_value("state:dead task:send_email")
    tab.get_by_role("button", name="Forget").click()
    expect(tab.get_by_role("link", name="dead mail")).to_have_count(0)


def test_jobs_that_were_picked_get_another_priority(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?state=ready&task=anything"))
    tab.get_by_label("Select all rows").check()
    tab.get_by_role("button", name="Change …").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("Change 3 waiting jobs?")
    dialog.get_by_label("Priority").fill("9")
    dialog.get_by_role("button", name="Change").click()
    expect(tab.locator(".toast")).to_contain_text("3 jobs changed")
    found = run(place.app, lambda: place.app.afind(task="anything"))
    assert [job.priority for job in found.jobs] == [9, 9, 9]
    tab.locator(".toast").get_by_role("button", name="Undo").click()
    expect(tab.locator(".toast")).to_contain_text("3 jobs as before")
    found = run(place.app, lambda: place.app.afind(task="anything"))
    assert [job.priority for job in found.jobs] == [place.app.tasks["anything"].template.priority] * 3


def test_a_job_is_made_from_the_arguments_of_its_task(tab: Page, place: Served):
    tab.goto(place.ui("tasks"))
    tab.get_by_role("link", name="send_email").click()
    tab.get_by_label(re.compile("^to")).fill("12")
    tab.get_by_role("button", name="Enqueue").click()
    expect(tab.locator("main")).to_contain_text("Timeline")
    [job] = run(place.app, place.app.afind).jobs
    assert job.body == b'{"to":"12"}'


def test_a_group_is_muted_until_another_job_dies(tab: Page, place: Served):
    _, newest = fill(place.app)

    async def die() -> None:
        store = await place.app.store()
        await place.app.arequeue(newest)
        [again] = await store.claim([Share("mail")], 1, "w1@vm1", 60.0)
        await store.settle([Settlement(again.id, again.lease, Dead(Failure("ConnectionError: no route to host", "")))])

    tab.goto(place.ui("dead"))
    rows = tab.get_by_role("table", name="Groups of dead letters").locator("tbody tr")
    expect(rows).to_have_count(1)
    tab.get_by_role("button", name="Mute").click()
    expect(rows).to_have_count(0)
    tab.get_by_role("button", name="1 muted group, show").click()
    expect(rows).to_have_count(1)
    tab.reload()
    expect(tab.get_by_role("button", name="1 muted group, show")).to_be_visible()
    run(place.app, die)
    tab.reload()
    expect(rows).to_have_count(1)


def test_the_system_tells_settings_and_latency(tab: Page, place: Served):
    tab.goto(place.ui("system"))
    expect(tab.locator("main")).to_contain_text("A read takes")
    expect(tab.locator("main")).to_contain_text("sqlite:///")


def test_the_bar_says_how_many_match_and_changes_all_of_them(tab: Page, place: Served):
    async def enqueue() -> None:
        await place.app.aenqueue_many([place.app.tasks["anything"].job(row=row) for row in range(70)])

    run(place.app, enqueue)
    tab.goto(place.ui("jobs?state=ready&task=anything"))
    bar = tab.get_by_role("region", name="Actions")
    expect(bar).to_contain_text("All 70 that match")
    tab.get_by_label("Select all rows").check()
    expect(bar).to_contain_text("50 jobs selected")
    bar.get_by_role("button", name="All 70 that match").click()
    bar.get_by_role("button", name="Change all …").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("Change 70 waiting jobs?")
    dialog.get_by_label("Priority").fill("9")
    dialog.get_by_role("button", name="Change").click()
    expect(tab.locator(".toast")).to_contain_text("70 jobs changed")
    assert {job.priority for job in run(place.app, lambda: place.app.afind(task="anything", limit=100)).jobs} == {9}


def test_a_kind_of_error_keeps_its_tabs_and_its_count(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("dead"))
    tab.get_by_role("link", name="ConnectionError").first.click()
    tab.get_by_role("link", name="All", exact=True).click()
    expect(tab.get_by_role("link", name=re.compile("^dead"))).to_have_text(re.compile("2$"))
    expect(tab.get_by_role("region", name="Actions")).to_contain_text("All 2 that match")
    tab.get_by_role("link", name=re.compile("^done")).click()
    expect(tab.get_by_label("Search jobs")).to_have_value("state:done")


def test_running_jobs_are_listed_by_their_start_and_those_to_be_stopped_are_marked(tab: Page, place: Served):
    async def start() -> list[str]:
        store = await place.app.store()
        later = await place.app.aenqueue("anything", {}, delay=0)
        first = await place.app.aenqueue("send_email", {"to": "ann"})
        await store.claim([Share("mail")], 1, "w1@vm1", 60.0)
        await store.claim([Share("default")], 1, "w1@vm1", 60.0)
        await place.app.acancel(first.id)
        return [first.id[-8:], later.id[-8:]]

    first, later = run(place.app, start)
    tab.goto(place.ui("jobs?state=running"))
    rows = tab.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows.first).to_contain_text(first)
    expect(rows.first).to_contain_text("cancel asked")
    expect(rows.nth(1)).not_to_contain_text("cancel asked")
    with tab.expect_response(lambda answer: "sort=started" in answer.url) as asked:
        tab.get_by_role("link", name="Longest first").click()
    order = [job["id"][-8:] for job in asked.value.json()["jobs"]]
    assert set(order) == {first, later}
    for place_of, id in enumerate(order):
        expect(rows.nth(place_of)).to_contain_text(id)
    tab.get_by_role("link", name="Newest first").click()
    expect(tab).not_to_have_url(re.compile("sort"))


def test_jobs_of_several_states_are_kept_as_one_file(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?state=dead,done"))
    with tab.expect_download() as download:
        tab.get_by_role("link", name="NDJSON").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["state"] for line in lines) == ["dead", "dead", "done"]
