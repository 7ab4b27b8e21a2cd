"""What people do with the dashboard, in a real browser: watch, pause, log in, act, lose the server and find it again."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from hawser import Every, Hawser
from hawser.clock import to_us
from hawser.job import Claimed, State
from hawser.outcome import Dead, Done, Failure, Held, Snoozed
from hawser.schedule.change import skip_next
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Advance, Definition, create, plan
from hawser.store import Actor, Arrival, Beat, NewOutput, NewStep, Settlement, Share
from hawser.store.api_key import Role, issue
from hawser.testing.clock import ManualClock
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
    expect(tab.locator(".plot svg").last).to_be_visible()
    tab.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    began = time.monotonic()
    for _ in range(8):
        enqueue(place.app)
        tab.wait_for_timeout(400)
    assert 1 <= len(asked) <= time.monotonic() - began + 1
    assert set(asked) == {"overview?minutes=60&queues=12"}


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


def test_a_pause_is_taken_back_in_one_step(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("queues"))
    row = tab.get_by_role("table", name="Queues").locator("tbody tr", has_text="mail")
    row.get_by_role("button", name="Pause").click()
    tab.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    tab.locator(".toast").get_by_role("button", name="Undo").click()
    expect(row).not_to_contain_text("paused")
    row.get_by_role("button", name="Pause").click()
    tab.get_by_role("dialog").get_by_role("button", name="Pause").click()
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()


@pytest.mark.parametrize("allowed", [("status of 400",)])
def test_a_limit_is_set_shows_its_use_and_is_taken_back(tab: Page, place: Served):
    enqueue(place.app, 3)
    tab.goto(place.ui("limits"))
    tab.get_by_role("button", name="Limit a queue").click()
    tab.get_by_label("Name of the queue").fill("mail")
    tab.get_by_label("Run at once").fill("1")
    tab.get_by_label("Starts in a period").fill("often")
    dialog = tab.get_by_role("dialog")
    dialog.get_by_role("button", name="Set the limit").click()
    expect(tab.locator(".toast.bad")).to_contain_text("rate")
    tab.get_by_label("Starts in a period").fill("100/m")
    tab.get_by_label("Reason, for the audit").fill("the mail server is slow")
    dialog.get_by_role("button", name="Set the limit").click()
    row = tab.get_by_role("table", name="Limits").locator("tbody tr")
    expect(row).to_contain_text("0/1")
    claim(place.app)
    expect(row).to_contain_text("keeps jobs back")
    expect(row).to_contain_text("1/100")
    expect(row).to_contain_text("1 at once, 100/m")
    tab.get_by_role("button", name="Take back").click()
    dialog.get_by_role("button", name="Take it back").click()
    expect(tab.locator("main")).to_contain_text("There is no limit")
    tab.goto(place.ui("audit"))
    expect(tab.get_by_role("table", name="Audit")).to_contain_text("the mail server is slow")


def test_a_queue_with_a_rate_shows_what_runs_and_waits(tab: Page, place: Served):
    enqueue(place.app, 3)
    run(place.app, lambda: place.app.aset_limit(queue="mail", rate="100/m"))
    claim(place.app)
    tab.goto(place.ui("limits"))
    cells = tab.get_by_role("table", name="Limits").locator("tbody tr td")
    expect(cells.nth(1)).to_have_text("100/m")
    expect(cells.nth(3)).to_have_text("1")
    expect(cells.nth(5)).to_have_text("2")


def test_a_breaker_is_opened_and_closed_by_hand(tab: Page, place: Served):
    tab.goto(place.ui("limits"))
    tab.get_by_role("button", name="Open a breaker").click()
    tab.get_by_label("Task", exact=True).fill("send_email")
    tab.get_by_role("dialog").get_by_role("button", name="Open").click()
    row = tab.get_by_role("table", name="Breakers").locator("tbody tr")
    expect(row).to_contain_text("none: close it by hand")
    row.get_by_role("button", name="Close").click()
    tab.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(tab.locator("main")).to_contain_text("There is no breaker")
    tab.goto(place.ui("audit"))
    expect(tab.get_by_role("table", name="Audit")).to_contain_text("close breaker")


def test_the_breaker_of_a_task_is_opened_and_closed_where_its_figures_are(tab: Page, place: Served):
    enqueue(place.app)
    tab.goto(place.ui("tasks/send_email"))
    tab.get_by_role("button", name="Open its breaker").click()
    tab.get_by_role("dialog").get_by_role("button", name="Open").click()
    expect(tab.locator("main")).to_contain_text("None of its jobs starts")
    tab.goto(place.ui("tasks"))
    row = tab.get_by_role("table", name="Tasks").locator("tbody tr", has_text="send_email")
    expect(row).to_contain_text("breaker open")
    row.get_by_role("button", name="Close breaker").click()
    tab.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(row).not_to_contain_text("breaker open")


def test_the_tasks_tell_how_many_attempts_were_tried_again(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("tasks"))
    row = tab.get_by_role("table", name="Tasks").locator("tbody tr", has_text="send_email")
    expect(row.locator("td[data-name='Failed, retries']")).to_have_text("75 %, 1")


def claim(app: Hawser, count: int = 1) -> None:
    """What a worker takes and goes on with."""

    async def work() -> None:
        assert await (await app.store()).claim([Share("mail")], count, "w1@vm1", 60.0)

    run(app, work)


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
    dead = fill(place.app)
    tab.goto(place.ui("jobs?state=dead"))
    tab.get_by_label("Select all rows").check()
    tab.get_by_role("region", name="Actions").get_by_role("button", name="Run again").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("Run again 2 jobs?")
    expect(dialog).to_contain_text("2 of send_email, enqueued")
    expect(dialog).to_contain_text("ConnectionError: no route to host")
    assert run(place.app, lambda: place.app.aget(dead[0])).state is State.DEAD  # nothing is done before it is said
    dialog.get_by_label("Reason").fill("the route is back")
    dialog.get_by_role("button", name="Run again").click()
    expect(tab.locator(".toast")).to_contain_text("2 jobs changed")
    tab.goto(place.ui(f"jobs/{dead[0]}"))
    expect(tab.get_by_role("table", name="Audit of the job")).to_contain_text("the route is back")
    tab.get_by_role("link", name="Audit", exact=True).last.click()
    expect(tab.get_by_role("table", name="Audit").locator("tbody tr")).to_have_count(1)


def test_what_is_picked_in_another_state_is_named_and_left_alone(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?task=send_email"))
    tab.get_by_label("Select all rows").check()
    tab.get_by_role("region", name="Actions").get_by_role("button", name="Discard").click()
    expect(tab.get_by_role("dialog")).to_contain_text("Discard 2 jobs?")
    expect(tab.get_by_role("dialog")).to_contain_text("3 jobs of those selected are in another state")
    tab.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(tab.locator(".toast")).to_contain_text("2 jobs changed")


def test_all_that_match_are_shown_by_a_sample_first(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("jobs?state=dead"))
    tab.get_by_role("button", name="Discard all").click()
    expect(tab.get_by_role("dialog").locator(".sample li")).to_have_count(2)
    expect(tab.get_by_role("dialog").locator(".sample")).to_contain_text("ConnectionError: no route to host")


def test_a_pause_may_have_an_end(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("queues/mail"))
    tab.get_by_role("button", name="Pause", exact=True).click()
    tab.get_by_role("dialog").get_by_label("Until").fill("2099-01-02T03:04")
    tab.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(tab.locator(".status")).to_contain_text("ends in")


def test_the_window_of_the_charts_stays_on_the_way_to_another_screen(tab: Page, place: Served):
    fill(place.app)
    tab.goto(place.ui("?minutes=15"))
    tab.get_by_role("link", name="mail", exact=True).first.click()
    expect(tab.get_by_role("heading", name="mail")).to_be_visible()
    expect(tab.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "true")


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


def test_a_waiting_job_is_changed_made_due_and_ended(tab: Page, place: Served):
    async def later() -> str:
        return (await place.app.tasks["send_email"].using(delay=3600).aenqueue(to="ann")).id

    id = run(place.app, later)
    tab.goto(place.ui(f"jobs/{id}"))
    facts = tab.locator(".fields")
    dialog = tab.get_by_role("dialog")
    tab.get_by_role("button", name="Change").click()
    dialog.get_by_label("Priority").fill("9")
    dialog.get_by_label("Queue").fill("default")
    dialog.get_by_role("button", name="Change").click()
    expect(facts).to_contain_text("Priority9")
    expect(facts).to_contain_text("Queuedefault")
    expect(facts.get_by_text("in 60 min")).to_be_visible()
    tab.get_by_role("button", name="Run now").click()
    expect(tab.get_by_role("button", name="Run now")).to_have_count(0)
    tab.get_by_role("button", name="Change").click()
    dialog.get_by_label("Due").fill("2030-01-02T03:04")
    dialog.get_by_role("button", name="Change").click()
    expect(facts.locator("time[datetime^='2030-01-02T']")).to_be_visible()
    tab.get_by_role("button", name="End as dead").click()
    dialog.get_by_label("Reason, for the audit").fill("it can never work")
    dialog.get_by_role("button", name="End as dead").click()
    expect(tab.locator(".status")).to_contain_text("it can never work")


def test_a_job_shows_its_steps_and_how_long_it_sleeps(tab: Page, place: Served):
    async def work() -> str:
        store = await place.app.store()
        handle = await place.app.aenqueue("send_email", {"to": "ann"})
        [job] = await store.claim([Share("mail")], 1, "w1@vm1", 60.0)
        charge = NewStep(id=job.id, lease=job.lease, name="charge", value=b'{"receipt":"r-77"}')
        cool = NewStep(id=job.id, lease=job.lease, name="cool-off", value=b"null", kind="sleep", lasts=7200.0)
        await store.record_steps([charge, cool])
        await store.settle([Settlement(job.id, job.lease, Snoozed(7200.0))])
        return handle.id

    tab.goto(place.ui(f"jobs/{run(place.app, work)}"))
    steps = tab.get_by_role("table", name="Steps").locator("tbody tr")
    expect(steps).to_have_count(2)
    expect(steps.first).to_contain_text("r-77")
    expect(steps.last).to_contain_text(re.compile("sleep.*until in (120 min|2 h)"))
    expect(tab.locator(".legend")).to_contain_text("sleep cool-off")


def test_a_job_shows_the_event_that_it_waits_for_and_what_came(tab: Page, place: Served):
    async def work() -> str:
        store = await place.app.store()
        handle = await place.app.aenqueue("send_email", {"to": "ann"})
        [job] = await store.claim([Share("mail")], 1, "w1@vm1", 60.0)
        await store.settle([Settlement(job.id, job.lease, Held("paid", event="payment-7", timeout=7200.0))])
        return handle.id

    tab.goto(place.ui(f"jobs/{run(place.app, work)}"))
    row = tab.get_by_role("table", name="Steps").locator("tbody tr")
    expect(row).to_contain_text("wait")
    expect(row).to_contain_text("for event payment-7")
    expect(tab.locator(".legend")).to_contain_text("wait for payment-7")
    expect(tab.get_by_role("button", name="Run now")).to_have_count(0)
    assert httpx.post(f"{place.url}/events/payment-7", json={"body": {"amount": 12}}).status_code < 300
    expect(row).to_contain_text("woken")


def test_waits_that_are_over_are_drawn_from_their_start_to_their_end(tab: Page, place: Served, store: str):
    clock = ManualClock(datetime.now(UTC) - timedelta(hours=2))
    app = make_app(store, clock)

    async def work() -> str:
        store = await app.store()

        async def hold(event: str) -> None:
            [job] = await store.claim([Share("mail")], 1, "w1@vm1", 60.0)
            await arrive(job, "paid")
            await store.settle([Settlement(job.id, job.lease, Held(event, event=event, timeout=4000.0))])

        async def arrive(job: Claimed, event: str) -> None:
            assert await store.arrive(Arrival(id=job.id, lease=job.lease, name=event, event=event)) is not None

        handle = await app.aenqueue("send_email", {"to": "ann"})
        await hold("paid")
        clock.advance(1200)
        await store.emit("paid", b'{"amount":12}', 86_400.0)
        clock.advance(600)
        await hold("packed")
        clock.advance(4000)
        await store.reclaim(10)
        clock.advance(300)
        [job] = await store.claim([Share("mail")], 1, "w1@vm1", 60.0)
        await arrive(job, "packed")
        clock.advance(60)
        await store.settle([Settlement(job.id, job.lease, Done())])
        return handle.id

    tab.goto(place.ui(f"jobs/{run(app, work)}"))
    app.close()
    parts = ["wait for paid: 20 min", "earlier runs: 10 min", "wait for packed: 67 min", "wait: 5 min", "attempt #1, done: 60 s"]
    expect(tab.locator(".legend li")).to_have_text(parts)
    span = re.compile(r"^wait for paid: 20 min, from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d$")
    expect(tab.locator(".part.sleep").first).to_have_attribute("title", span)
    rows = tab.get_by_role("table", name="Steps").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text(re.compile(r"event(120 min|2 h) ago to 100 min ago"))
    expect(rows.nth(1)).to_contain_text(re.compile(r"timeout90 min ago to 23 min ago"))


def test_a_job_shows_what_its_runs_write(tab: Page, place: Served):
    async def work() -> str:
        store = await place.app.store()
        handle = await place.app.aenqueue("send_email", {"to": "ann"})
        [job] = await store.claim([Share("mail")], 1, "w1@vm1", 60.0)
        chunks = b'"Once upon "', b'"a <b>time</b>\\n"', b'{"turn":2}'
        await store.write_output([NewOutput(id=job.id, lease=job.lease, attempt=1, first=0, chunks=chunks)])
        return handle.id

    tab.goto(place.ui(f"jobs/{run(place.app, work)}"))
    card = tab.locator(".card", has_text="Output")
    expect(card.locator("pre")).to_have_text('Once upon a <b>time</b>\n{"turn":2}\n')
    expect(card).to_contain_text("3 chunks")


def test_a_group_gets_more_places(tab: Page, place: Served):
    tab.goto(place.ui("queues/mail"))
    tab.get_by_role("button", name="Weight of a group").click()
    tab.get_by_label("Group", exact=True).fill("acme & sons")
    tab.get_by_label("Places").fill("3")
    tab.get_by_role("dialog").get_by_role("button", name="Set the weight").click()
    row = tab.get_by_role("table", name="Weights of groups").locator("tbody tr")
    expect(row).to_contain_text("acme & sons")
    row.get_by_role("button", name="Change").click()
    tab.get_by_label("Places").fill("1")
    tab.get_by_role("dialog").get_by_role("button", name="Set the weight").click()
    expect(row).to_have_count(0, timeout=25_000)


def test_the_jobs_of_a_lost_worker_are_taken_back(browser: Browser, store: str):
    clock = ManualClock()
    app = make_app(store, clock)

    async def lose() -> None:
        await app.aenqueue("send_email", {"to": "ann"})
        await (await app.store()).claim([Share("mail")], 1, "w1@vm1", 3600.0)
        await (await app.store()).beat(
            [Beat(worker="w1@vm1", host="vm1", pid=7, version="1", queues=("mail",), slots=4, running=1)]
        )

    run(app, lose)
    clock.advance(60)
    faults: list[str] = []
    with served(make_app(store, clock)) as url:
        context = browser.new_context(locale="en-GB")
        tab = watched(context, faults)
        tab.clock.install(time=clock.now() / 1_000_000)
        tab.goto(f"{url}/ui/workers")
        expect(tab.get_by_role("table", name="Running jobs").locator("tbody tr")).to_have_count(1)
        tab.get_by_role("button", name="Take back its jobs").click()
        tab.get_by_role("dialog").get_by_role("button", name="Take back").click()
        expect(tab.locator(".toast")).to_contain_text("1 job taken back.")
        expect(tab.locator("main")).to_contain_text("No job runs")
        context.close()
    assert faults == []


def test_a_schedule_shows_what_became_of_its_ticks_and_when_the_next_come(tab: Page, place: Served):
    """Of three ticks one was done, one died, one was skipped."""

    async def tick() -> None:
        store = await place.app.store()
        now = (await store.due_schedules(0)).now
        full = now - now % to_us(60)  # ticks come with the minutes of the clock
        made = create(Definition(name="minutely", rule_text=text_of(Every(minutes=1)), task="charge"), full - to_us(200)).schedule
        first = plan(made, full - to_us(170))
        skipped = skip_next(first.schedule, full - to_us(160))
        last = plan(skipped.schedule, full - to_us(30))
        await store.fire([Advance(schedule=last.schedule, expect=None, jobs=(*first.jobs, *last.jobs))])
        jobs = await store.claim([Share("default")], 2, "w1@vm1", 60.0)
        failure = Dead(Failure("ValueError: no", ""))
        await store.settle([Settlement(jobs[0].id, jobs[0].lease, Done()), Settlement(jobs[1].id, jobs[1].lease, failure)])

    run(place.app, tick)
    tab.goto(place.ui("schedules"))
    expect(tab.locator(".strip .tick")).to_have_count(3)
    expect(tab.locator("main")).to_contain_text(re.compile("The last 3 ticks: 1 dead, 1 skipped, 1 (late|done)"))
    expect(tab.locator("main")).to_contain_text("The next 100 ticks, until")
    tab.get_by_role("button", name="Run now").click()
    tab.get_by_role("dialog").get_by_role("button", name="Run now").click()
    expect(tab.locator(".toast")).to_contain_text("The job is in the queue.")
    tab.locator(".tick.dead").click()
    expect(tab.locator(".status")).to_contain_text("ValueError: no")


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


BUTTONS = re.compile(
    "Run again|Discard|Cancel|Pause$|Resume|Edit and replay|Run now|Skip|Try one|Replay|Limit a|Open|Close$|Take back|Change"
)


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
        for path in (f"jobs/{dead}", "jobs?state=dead", "queues/mail", "tasks", "schedules", "dead", "limits", "workers"):
            tab.goto(f"{url}/ui/{path}")
            expect(tab.locator("h1")).to_be_visible()
            expect(tab.locator(".loading")).to_have_count(0)
            expect(tab.locator("main").get_by_role("button", name=BUTTONS)).to_have_count(0)
            expect(tab.locator("main").get_by_role("checkbox")).to_have_count(0)
        assert tab.get_by_role("link", name="Audit").count() == (0 if how == "viewer" else 1)
        context.close()
    assert faults == []


# The server goes and comes.


def test_without_the_stream_of_events_it_asks_by_itself(tab: Page, place: Served, monkeypatch: pytest.MonkeyPatch):
    """The streams end after a second, and a proxy lets no new one through."""
    monkeypatch.setattr("hawser.api.events.STREAM_LASTS_S", 1.0)
    monkeypatch.setattr("hawser.api.events.ALIVE_EVERY_S", 0.2)
    tab.goto(place.ui())
    live = tab.locator("button.live")
    expect(live).to_have_text("Live")
    tab.route("**/events", lambda route: route.fulfill(status=204))
    expect(live).to_have_text("Polling")
    enqueue(place.app, 3)
    expect(figure(tab, "Waiting")).to_have_text("3")
    tab.unroute("**/events")
    expect(live).to_have_text("Live")
    enqueue(place.app, 1)
    expect(figure(tab, "Waiting")).to_have_text("4")


def test_a_hidden_tab_asks_nothing(tab: Page, place: Served):
    tab.goto(place.ui())
    expect(tab.locator("button.live")).to_have_text("Live")
    expect(tab.locator(".plot svg").last).to_be_visible()
    hide = "hidden => {{ Object.defineProperty(document, 'hidden', {{ value: {0}, configurable: true }}); {1} }}"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    tab.evaluate(hide.format("true", tell))
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    enqueue(place.app, 3)
    tab.wait_for_timeout(3_000)
    assert asked == []
    expect(figure(tab, "Waiting")).to_have_text("0")
    tab.evaluate(hide.format("false", tell))
    expect(figure(tab, "Waiting")).to_have_text("3")


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
    expect(tab.get_by_role("alert")).to_contain_text(re.compile(r"What is shown is of \d\d:\d\d:\d\d"))
    expect(tab.locator("button.live")).not_to_have_text("Live")
    expect(figure(tab, "Waiting")).to_have_text("2")
    enqueue(app, 1)
    with served(make_app(store), port):
        expect(tab.get_by_role("alert")).to_have_count(0, timeout=20_000)
        expect(figure(tab, "Waiting")).to_have_text("3", timeout=15_000)
        context.close()
    assert faults == []
