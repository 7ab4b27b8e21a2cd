"""What people do with the dashboard, in a real browser: watch, pause, log in, act, lose the server and find it again."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from hawser import Hawser
from hawser.outcome import Dead, Done, Failure
from hawser.store import Actor, Settlement, Share
from hawser.store.api_key import Role, issue
from tests.api.conftest import make_app
from tests.page.conftest import Served, served, watched
from tests.page.test_screens import fill, run

UNAUTHORISED = "status of 401"
AWAY = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")


def key_of(app: Hawser, role: Role) -> tuple[str, str]:
    """The id and the text of a new key."""
    key, text = issue("ann", (role,))

    async def put() -> None:
        await (await app.store()).put_api_key(key, None, Actor())

    run(app, put)
    return key.id, text


def enqueue(app: Hawser, count: int = 1) -> None:
    async def work() -> None:
        await app.aenqueue_many([app.tasks["send_email"].job(to=f"user{number}") for number in range(count)])

    run(app, work)


def figure(tab: Page, name: str) -> Any:
    return tab.locator("a.figure", has=tab.get_by_text(name, exact=True)).locator(".value")


def test_figures_move_by_themselves_and_stand_still_when_paused(tab: Page, place: Served):
    asked: list[str] = []
    tab.goto(place.ui())
    expect(figure(tab, "Waiting")).to_have_text("0")
    expect(tab.locator("button.live")).to_have_text("Live")
    enqueue(place.app, 3)
    expect(figure(tab, "Waiting")).to_have_text("3")
    tab.get_by_role("button", name="Live").click()
    expect(tab.get_by_role("button", name="Paused")).to_be_visible()
    tab.wait_for_load_state()
    tab.on("request", lambda request: asked.append(request.url))
    enqueue(place.app, 3)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        tab.wait_for_timeout(200)
    assert asked == []
    expect(figure(tab, "Waiting")).to_have_text("3")
    tab.get_by_role("button", name="Paused").click()
    expect(figure(tab, "Waiting")).to_have_text("6")


def test_a_busy_tab_asks_at_most_once_a_second(tab: Page, place: Served):
    asked: list[str] = []
    tab.goto(place.ui())
    expect(tab.locator("button.live")).to_have_text("Live")
    expect(tab.locator(".uplot").last).to_be_visible()
    tab.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    began = time.monotonic()
    for _ in range(8):
        enqueue(place.app)
        tab.wait_for_timeout(400)
    assert 1 <= len(asked) <= time.monotonic() - began + 1
    assert set(asked) == {"overview?minutes=60"}


def test_new_jobs_do_not_move_the_list(tab: Page, place: Served):
    enqueue(place.app, 2)
    tab.goto(place.ui("jobs"))
    rows = tab.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(2)
    first = rows.first.inner_text()
    enqueue(place.app, 3)
    expect(tab.get_by_role("button", name="3 new, show")).to_be_visible()
    expect(rows).to_have_count(2)
    assert first.split()[0] == rows.first.inner_text().split()[0]
    tab.get_by_role("button", name="3 new, show").click()
    expect(rows).to_have_count(5)


def test_a_queue_is_paused_with_a_reason_and_goes_on(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("queues/mail"))
    tab.get_by_role("button", name="Pause", exact=True).click()
    tab.get_by_label("Reason, for the audit").fill("the mail server is down")
    tab.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(tab.locator(".status")).to_contain_text("the queue is paused by local: the mail server is down")
    tab.get_by_role("button", name="Resume").click()
    expect(tab.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    tab.goto(place.ui("audit"))
    table = tab.get_by_role("table", name="Audit")
    expect(table).to_contain_text("the mail server is down")
    expect(table).to_contain_text("resume")


def settle_next(app: Hawser, *, good: bool) -> None:
    """What a worker would do with the next job of the queue."""

    async def work() -> None:
        store = await app.store()
        claimed: list[Any] = []
        while not claimed:
            claimed = await store.claim([Share("mail")], 1, "w2@vm1", 60.0)
            await asyncio.sleep(0.05)
        [job] = claimed
        await store.settle([Settlement(job.id, job.lease, Done() if good else Dead(Failure("ConnectionError: again", "")))])

    run(app, work)


def test_dead_letters_are_tried_one_first_and_then_all(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("dead"))
    tab.get_by_role("link", name="ConnectionError").click()
    expect(tab.get_by_role("table", name="What they have in common")).to_contain_text("welcome")
    tab.get_by_role("button", name="Try one").click()
    settle_next(place.app, good=True)
    expect(tab.locator(".operation")).to_contain_text("worked")
    tab.get_by_role("button", name="Replay the others").click()
    expect(tab.get_by_role("dialog")).to_contain_text("Run again 1 job?")
    tab.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(tab.locator("main")).to_contain_text("No dead job is left in this group.")


def test_jobs_that_were_picked_are_run_again(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?state=dead"))
    tab.get_by_label("Select all rows").check()
    tab.get_by_role("region", name="Actions").get_by_role("button", name="Run again").click()
    expect(tab.locator(".toast")).to_contain_text("2 jobs changed")


def test_a_dead_job_is_edited_and_replayed(tab: Page, place: Served):
    dead, _ = fill(place.app)
    tab.goto(place.ui(f"jobs/{dead}"))
    tab.get_by_role("button", name="Edit and replay").click()
    box = tab.get_by_label("Arguments", exact=True)
    box.fill('{"to": ')
    expect(tab.get_by_role("button", name="Replay as a new job")).to_be_disabled()
    box.fill('{"to": "bob", "template": "welcome"}')
    tab.get_by_role("button", name="Replay as a new job").click()
    expect(tab.locator(".tree")).to_contain_text("bob")
    expect(tab.locator(".fields")).to_contain_text("Parent")


def test_the_keyboard_is_enough(tab: Page, place: Served):
    dead, _ = fill(place.app)
    tab.goto(place.ui())
    expect(tab.locator("h2").first).to_be_visible()
    tab.keyboard.press("Control+k")
    tab.get_by_role("combobox", name="Go to").fill("state:dead")
    tab.keyboard.press("Enter")
    rows = tab.get_by_role("table", name="Jobs").locator("tbody tr")
    expect(rows).to_have_count(2)
    tab.keyboard.press("j")
    tab.keyboard.press("x")
    expect(tab.get_by_role("region", name="Actions")).to_contain_text("1 job selected")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    expect(tab.locator("h1")).to_contain_text(dead[-8:])
    tab.keyboard.press("g")
    tab.keyboard.press("w")
    expect(tab.locator("h1")).to_have_text("Workers")
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog")).to_contain_text("go to anything")


# Who may what.


def test_a_key_becomes_a_session_that_ends(browser: Browser, store: str):
    app = make_app(store)
    _, text = key_of(app, Role.OPERATOR)
    faults: list[str] = []
    with served(make_app(store), open=False, require_key=True) as url:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults, (UNAUTHORISED,))
        tab.goto(f"{url}/ui/jobs")
        tab.get_by_label("API key").fill("wrong")
        tab.get_by_role("button", name="Log in").click()
        expect(tab.get_by_role("alert")).to_contain_text("the key is unknown, expired or revoked")
        tab.get_by_label("API key").fill(text)
        tab.get_by_role("button", name="Log in").click()
        expect(tab.locator("h1")).to_have_text("Jobs")
        [cookie] = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert text not in str(
            tab.evaluate("() => [document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
        )
        tab.reload()
        expect(tab.locator("h1")).to_have_text("Jobs")
        tab.goto(f"{url}/ui/system")
        tab.get_by_role("button", name="Log out").click()
        expect(tab.get_by_role("button", name="Log in")).to_be_visible()
        assert httpx.get(f"{url}/me", cookies={cookie["name"]: cookie["value"]}).status_code == 401
        context.close()
    assert faults == []


def test_a_key_that_is_revoked_while_the_page_is_open_ends_it(browser: Browser, store: str):
    app = make_app(store)
    id, text = key_of(app, Role.VIEWER)
    faults: list[str] = []
    with served(make_app(store), open=False, require_key=True) as url:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults, (UNAUTHORISED,))
        tab.goto(f"{url}/ui/")
        tab.get_by_label("API key").fill(text)
        tab.get_by_role("button", name="Log in").click()
        expect(figure(tab, "Waiting")).to_be_visible()

        async def revoke() -> None:
            await (await app.store()).revoke_api_key(id, Actor())

        run(app, revoke)
        expect(tab.get_by_role("button", name="Log in")).to_be_visible(timeout=15_000)
        context.close()
    assert faults == []


@pytest.mark.parametrize("how", ["viewer", "read_only"])
def test_who_may_not_act_sees_no_buttons(browser: Browser, store: str, how: str):
    app = make_app(store)
    dead, _ = fill(app)
    _, text = key_of(app, Role.VIEWER if how == "viewer" else Role.ADMIN)
    faults: list[str] = []
    with served(make_app(store), open=False, require_key=True, read_only=how == "read_only") as url:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults, (UNAUTHORISED,))
        tab.goto(f"{url}/ui/")
        tab.get_by_label("API key").fill(text)
        tab.get_by_role("button", name="Log in").click()
        expect(figure(tab, "Dead")).to_have_text("2")
        for path in (f"jobs/{dead}", "jobs?state=dead", "queues/mail", "tasks", "schedules", "dead"):
            tab.goto(f"{url}/ui/{path}")
            expect(tab.locator("h1")).to_be_visible()
            expect(tab.locator(".loading")).to_have_count(0)
            words = re.compile("Run again|Discard|Cancel|Pause$|Resume|Edit and replay|Run now|Skip|Try one|Replay")
            expect(tab.locator("main").get_by_role("button", name=words)).to_have_count(0)
            expect(tab.locator("main").get_by_role("checkbox")).to_have_count(0)
        assert tab.get_by_role("link", name="Audit").count() == (0 if how == "viewer" else 1)
        context.close()
    assert faults == []


# The server goes and comes.


def test_a_server_that_goes_is_told_and_found_again(browser: Browser, store: str):
    app = make_app(store)
    enqueue(app, 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    faults: list[str] = []
    context = browser.new_context(locale="en-GB")
    tab = watched(context, faults, AWAY)
    with served(make_app(store), port) as url:
        tab.goto(f"{url}/ui/")
        expect(figure(tab, "Waiting")).to_have_text("2")
    expect(tab.get_by_role("alert")).to_contain_text("The server does not answer", timeout=15_000)
    expect(figure(tab, "Waiting")).to_have_text("2")
    enqueue(app, 1)
    with served(make_app(store), port):
        expect(tab.get_by_role("alert")).to_have_count(0, timeout=20_000)
        expect(figure(tab, "Waiting")).to_have_text("3", timeout=15_000)
        context.close()
    assert faults == []
