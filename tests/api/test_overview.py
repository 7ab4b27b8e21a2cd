"""What the screens ask for: true figures, one reading for many, and nothing that a viewer may not see."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from datetime import datetime

import httpx
import pytest
from msgspec.structs import replace

from hawser import Hawser
from hawser.api.series import series_of, step_of
from hawser.api.shared import MOST_ANSWERS_KEPT, Shared
from hawser.client.explain import is_alive
from hawser.clock import at
from hawser.job import NewJob, State
from hawser.limit import Limit
from hawser.outcome import Dead, Done, Failed, Failure
from hawser.schedule.rule import Every, text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import EVERY_QUEUE, Actor, Beat, Settlement, Share, Store, Target, WorkerSeen
from hawser.store.rollup import Measured, bucket_of
from hawser.stores.memory import MemoryStore
from hawser.testing import FaultyStore
from hawser.testing.clock import ManualClock
from tests.api.conftest import client_of, fields, in_state, make_app

MAIL = Beat(worker="w1", host="vm1", pid=7, version="1", queues=("mail",), slots=4, running=3)


async def test_the_overview_tells_how_things_stand(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    await in_state(app, State.DEAD)
    await in_state(app, State.DONE)
    await in_state(app, State.READY)
    await store.beat([MAIL])
    shown = (await client.get("/overview?minutes=30")).json()
    [queue] = shown["queues"]
    assert (queue["queue"], queue["waiting"], queue["dead"], queue["slots"], queue["busy"]) == ("mail", 1, 1, 4, 3)
    assert (shown["totals"]["done"], shown["dead_in_window"], shown["workers"]["alive"]) == (1, 1, 1)
    [group] = shown["groups"]
    assert (group["task"], group["count"], group["sample_error"]) == ("send_email", 1, "ValueError: no")
    assert (len(shown["series"]["done"]), sum(shown["series"]["done"]), sum(shown["series"]["enqueued"])) == (30, 1, 3)
    assert sum(queue["spark"]) == 0
    assert shown["status"]["level"] == "good"
    assert shown["series"]["at"] == shown["at"]
    clock.advance(60)
    later = (await client.get("/overview?minutes=31")).json()
    assert [sum(queue["spark"]) for queue in later["queues"]] == [1], "the minute is over"


async def test_charts_are_of_an_own_time(client: httpx.AsyncClient, app: Hawser, clock: ManualClock):
    clock.advance(-(clock.now() / 1e6 % 60))
    begin = clock.now()
    for count in (1, 2, 3, 4):
        for _ in range(count):
            await app.aenqueue("anything", {})
        clock.advance(60)
    time = {"since": at(begin + 60_000_000).isoformat(), "until": at(begin + 180_000_000).isoformat()}
    for path in ("/overview", "/queues/default/why"):
        shown = (await client.get(path, params=time)).json()
        assert shown["series"]["enqueued"] == [2, 3]
        assert shown["series"]["start"] == at(begin + 60_000_000).strftime("%Y-%m-%dT%H:%M:%SZ")
    overview = (await client.get("/overview", params=time)).json()
    assert (overview["series"]["waiting"], overview["totals"]["ready"]) == ([3, 6], 10)
    backwards = (await client.get("/overview", params={"since": time["until"], "until": time["since"]})).json()
    assert len(backwards["series"]["enqueued"]) == 1
    assert fields(await client.get("/overview?since=yesterday")) == ["since"]


async def test_an_overview_lists_as_many_queues_as_are_asked_for(client: httpx.AsyncClient, app: Hawser):
    for queue, count in (("a", 1), ("b", 3), ("c", 2)):
        await app.aenqueue_many([app.tasks["anything"].using(queue=queue).job() for _ in range(count)])
    shown = (await client.get("/overview?queues=2")).json()
    assert len(shown["queues"]) == 2
    assert shown["totals"]["ready"] == 6
    everything = (await client.get("/overview")).json()["queues"]
    assert shown["queues"] == everything[:2]
    assert len(everything) == 3
    assert (await client.get("/overview?queues=0")).json()["queues"] == []
    assert fields(await client.get("/overview?queues=-1")) == ["queues"]


async def test_an_empty_store_is_told_so(client: httpx.AsyncClient):
    shown = (await client.get("/overview")).json()
    assert shown["status"] == {"level": "idle", "text": "No job has been enqueued yet", "queue": None, "more": []}


async def test_the_sentence_is_about_the_queue_that_is_worst(
    client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock
):
    await app.aenqueue("send_email", {"to": "ann"})
    await app.aenqueue("anything", {})
    await store.beat([MAIL])
    await store.pause(Target("queue", "mail"), Actor("ann", "moving house"))
    clock.advance(20)
    shown = (await client.get("/overview")).json()
    assert shown["status"]["queue"] == "default"
    assert shown["status"]["text"] == "default is 20 s behind: no living worker serves queue default"
    assert shown["status"]["more"] == ["mail is 20 s behind: the queue is paused by ann: moving house"]
    assert {mark["target"] for mark in shown["marks"]} == {"queue:mail"}
    assert shown["marks"][0].keys() == {"at", "action", "target"}
    """Not who and why: a viewer may not read the audit."""


async def test_a_worker_that_is_not_heard_of_is_lost(client: httpx.AsyncClient, store: Store, clock: ManualClock):
    await store.beat([MAIL])
    clock.advance(60)
    shown = (await client.get("/overview")).json()
    assert (shown["workers"]["alive"], shown["workers"]["lost"]) == (0, 1)
    assert shown["status"]["text"].startswith("1 worker lost")


async def test_a_worker_of_all_queues_serves_each(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    await app.aenqueue("send_email", {"to": "ann"})
    await store.beat([replace(MAIL, queues=(EVERY_QUEUE,))])
    clock.advance(20)
    shown = (await client.get("/queues/mail/why")).json()
    assert (shown["queue"]["workers"], shown["queue"]["slots"]) == (1, 4)
    assert "no living worker" not in shown["headline"]


async def test_a_limit_and_a_breaker_are_reasons(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    for name in ("ann", "bob"):
        await app.aenqueue("send_email", {"to": name})
    await store.beat([MAIL])
    await store.set_limit(Target("queue", "mail"), Limit(running=1, max_depth=9), Actor("ann"))
    await store.claim([Share("mail")], 2, "w1", 60.0)
    clock.advance(20)
    await store.beat([MAIL])
    shown = (await client.get("/overview")).json()
    assert shown["status"]["text"] == "mail is 20 s behind: queue mail runs 1 of 1 at once (limit of queue mail)"
    [limit] = (await client.get("/admin/limits")).json()["limits"]
    assert (limit["running"], limit["max_running"], limit["shut"], limit["waiting"], limit["max_depth"]) == (1, 1, True, 1, 9)
    await store.open_breaker("send_email", Actor("ann"))
    assert "the breaker of task send_email is open" in (await client.get("/queues/mail/why")).json()["headline"]


async def test_why_compares_with_the_hour_before(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    async def ran(seconds: float) -> None:
        await store.measure([Measured("mail", "send_email", "run", bucket_of(seconds), 50)])

    await ran(0.09)
    clock.advance(30 * 60)
    await ran(2.4)
    await app.aenqueue("send_email", {"to": "ann"})
    clock.advance(30)
    await store.beat([MAIL])
    shown = (await client.get("/queues/mail/why")).json()
    [task] = shown["tasks"]
    assert (task["task"], task["waiting"]) == ("send_email", 1)
    assert task["run_p95_before"] < 0.1 < 1 < task["run_p95"]
    assert shown["queue"]["behind_s"] == 30.0
    assert shown["checks"][0]["check"] == "paused"


async def fail(store: Store, queue: str, count: int) -> None:
    claimed = await store.claim([Share(queue)], count, "w1", 60.0)
    await store.settle([Settlement(job.id, job.lease, Dead(Failure("TimeoutError: no answer"))) for job in claimed])


async def test_a_queue_whose_jobs_all_fail_is_the_first_thing_that_is_told(
    client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock
):
    await store.beat([replace(MAIL, queues=("default", "mail"))])
    for _ in range(10):
        await app.aenqueue("anything", {})
    await fail(store, "default", 9)
    clock.advance(1)
    assert (await client.get("/overview")).json()["status"]["level"] == "good", "nine attempts say nothing yet"
    await fail(store, "default", 1)
    clock.advance(1)
    shown = (await client.get("/overview?minutes=30")).json()
    assert shown["status"]["text"] == "default: 100 % of its attempts fail; 10 died within the hour"
    assert (shown["status"]["level"], shown["status"]["queue"]) == ("bad", "default")
    assert [queue["failure_share"] for queue in shown["queues"]] == [1.0]
    why = (await client.get("/queues/default/why")).json()
    assert (why["level"], why["headline"]) == ("bad", shown["status"]["text"])


async def test_workers_are_gone_through_once_and_not_for_each_queue(
    client: httpx.AsyncClient, app: Hawser, store: Store, monkeypatch: pytest.MonkeyPatch
):
    """A thousand queues and three hundred workers took a third of a second."""
    judged: list[WorkerSeen] = []

    def alive(worker: WorkerSeen, now: datetime) -> bool:
        judged.append(worker)
        return is_alive(worker, now)

    monkeypatch.setattr("hawser.api.facts.is_alive", alive)
    await store.beat([replace(MAIL, worker=f"w{n}", queues=("q1", "q2") if n else ("*",)) for n in range(5)])
    for queue in range(20):
        await app.tasks["anything"].using(queue=f"q{queue}").aenqueue()
    shown = (await client.get("/overview")).json()
    assert {each["queue"]: each["workers"] for each in shown["queues"]} == {f"q{n}": 5 if n in (1, 2) else 1 for n in range(20)}
    assert len(judged) <= 2 * 5


async def test_rates_of_a_young_store_are_of_the_time_since_its_first_job(
    client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock
):
    clock.advance(60 - clock.now() / 1e6 % 60)
    for _ in range(60):
        await app.aenqueue("anything", {})
    for look, (seconds, in_s) in enumerate(((30, 1.0), (60, 60 / 90), (60, 60 / 150), (120, 60 / 270))):
        clock.advance(seconds)
        window = f"minutes={30 + look}"  # another for each look: an answer is kept for half a second
        shown = (await client.get(f"/overview?{window}")).json()
        assert shown["queues"][0]["in_s"] == pytest.approx(in_s, rel=0.01), seconds
        assert shown["totals"]["rates"]["enqueued"] == pytest.approx(in_s, rel=0.01)
        why = (await client.get(f"/queues/default/why?{window}")).json()
        assert why["tasks"][0]["in_s"] == pytest.approx(in_s, rel=0.01)
        [inflow] = [check for check in why["checks"] if check["check"] == "inflow"]
        assert "no history yet" in inflow["text"]
    clock.advance(600)
    await app.aenqueue("anything", {})
    why = (await client.get("/queues/default/why")).json()
    assert "the hour before it was" in next(check["text"] for check in why["checks"] if check["check"] == "inflow")


async def test_why_of_a_queue_that_is_not_there_is_calm(client: httpx.AsyncClient):
    answer = await client.get("/queues/none/why")
    assert (answer.status_code, answer.json()["level"]) == (200, "idle")
    assert fields(await client.get("/queues/none/why?minutes=4")) == ["minutes"]


async def test_tasks_in_figures(client: httpx.AsyncClient, app: Hawser, store: Store):
    await in_state(app, State.DEAD)
    await in_state(app, State.DONE)
    await app.aenqueue("send_email", {"to": "ann"})
    await store.measure([Measured("mail", "send_email", "run", bucket_of(0.09), 2)])
    await store.pause(Target("task", "charge"), Actor("ann"))
    shown = (await client.get("/tasks/stats?minutes=60")).json()
    tasks = {task["task"]: task for task in shown["tasks"]}
    assert list(tasks) == ["send_email", "anything", "charge"]
    mail = tasks["send_email"]
    assert (mail["waiting"], mail["enqueued"], mail["done"], mail["dead"], mail["queues"]) == (1, 3, 1, 1, ["mail"])
    assert 0.05 < mail["run_p95"] <= 0.1
    assert (tasks["charge"]["pause"]["by"], tasks["charge"]["run_p95"], shown["complete"]) == ("ann", None, True)


async def test_many_who_look_at_once_cost_one_reading():
    found = 0

    async def find() -> int:
        nonlocal found
        found += 1
        await asyncio.sleep(0)
        return found

    now = [0.0]
    shared: Shared[int] = Shared(0.5, lambda: now[0])
    assert await asyncio.gather(*(shared.get("a", find) for _ in range(10))) == [1] * 10
    now[0] = 0.4
    assert await shared.get("a", find) == 1
    assert await shared.get("b", find) == 2
    now[0] = 0.6
    assert await shared.get("a", find) == 3


async def test_a_reading_that_fails_is_not_kept():
    async def fail() -> int:
        raise ValueError("no")

    async def find() -> int:
        return 1

    shared: Shared[int] = Shared(10.0, lambda: 0.0)
    with pytest.raises(ValueError, match="no"):
        await shared.get("a", fail)
    assert await shared.get("a", find) == 1


async def test_tasks_cost_as_many_reads_however_many_there_are():
    faulty = FaultyStore(MemoryStore(clock=ManualClock()))
    app, made = make_app(faulty), []
    api = app.asgi(upkeep=False, open=True)
    async with client_of(api) as client:
        await client.get("/overview")  # what is read once: a day of the audit, an hour of times
        await client.get("/queues/mail/why")
        while not api.past.day.complete:  # it is read beside the requests
            await asyncio.sleep(0)
        for tasks in (2, 60):
            await faulty.measure([Measured("mail", f"task{number}", "run", 3, 1) for number in range(tasks)])
            await faulty.enqueue([NewJob(task=f"task{number}", queue="mail", body=b"{}") for number in range(tasks)])
            faulty.calls.clear()
            shown = (await client.get(f"/tasks/stats?minutes={60 + tasks}")).json()
            assert sum(task["run_p50"] is not None for task in shown["tasks"]) == tasks
            made.append(faulty.calls.total())
            await client.get(f"/queues/mail/why?minutes={60 + tasks}")
            made.append(faulty.calls.total())
    await api.stop()
    assert made[:2] == made[2:]


async def test_the_next_ticks_are_those_that_come_first(client: httpx.AsyncClient, store: Store):
    now = (await store.due_schedules(0)).now
    hourly, daily = text_of(Every(hours=1)), text_of(Every(days=1))
    many = [create(Definition(name=f"a{number:03}", rule_text=daily, task="charge"), now) for number in range(210)]
    await store.fire([*many, create(Definition(name="zzz", rule_text=hourly, task="charge"), now)])
    shown = (await client.get("/overview")).json()["schedules"]
    assert [each["schedule"] for each in shown[:2]] == ["zzz", "a000"]


async def test_questions_without_end_are_forgotten():
    now = [0.0]
    shared: Shared[int] = Shared(0.5, lambda: now[0])

    async def find() -> int:
        return 1

    for number in range(3 * MOST_ANSWERS_KEPT):
        now[0] = float(number)
        await shared.get(number, find)
    assert len(shared._found) <= MOST_ANSWERS_KEPT


@pytest.mark.parametrize(("minutes", "step"), [(5, 1), (60, 1), (180, 1), (181, 2), (360, 2), (1440, 8)])
def test_a_long_window_has_longer_steps(minutes: int, step: int):
    assert step_of(minutes) == step


async def test_steps_lose_nothing(app: Hawser, store: Store, clock: ManualClock):
    for _ in range(7):
        await app.aenqueue("send_email", {"to": "ann"})
        clock.advance(60)
    rollups, now = await store.rollups(20), at(clock.now())
    assert sum(series_of(rollups, 1, now).enqueued) == sum(series_of(rollups, 3, now).enqueued) == 7
    assert len(series_of(rollups, 3, now).enqueued) == 7


# Jobs that were picked, and files.


async def test_jobs_that_were_picked_are_changed_in_one_write(client: httpx.AsyncClient, app: Hawser, store: Store):
    dead = [await in_state(app, State.DEAD), await in_state(app, State.DEAD)]
    ready = await in_state(app, State.READY)
    answer = await client.post("/jobs/selected", json={"action": "retry", "ids": [*dead, ready, dead[0]], "reason": "fixed"})
    assert answer.json() == {"done": 2, "asked": 0, "skipped": 1}
    records = await store.audit()
    assert (len(records), records[0].count, records[0].reason) == (1, 2, "fixed")
    assert (await client.post("/jobs/selected", json={"action": "cancel", "ids": [ready]})).json()["done"] == 1
    assert [(await app.aget(id)).state for id in (*dead, ready)] == [State.READY, State.READY, State.CANCELLED]


async def test_a_task_that_asks_for_a_confirmation_gets_one(client: httpx.AsyncClient, app: Hawser):
    dead = await in_state(app, State.DEAD, task="charge")
    body = {"action": "retry", "ids": [dead]}
    assert (await client.post("/jobs/selected", json=body)).json() == {"done": 0, "asked": 0, "skipped": 1}
    assert (await client.post("/jobs/selected", json=body | {"confirm": True})).json()["done"] == 1


@pytest.mark.parametrize("body", [{"action": "retry", "ids": []}, {"action": "retry", "ids": ["x"]}, {"action": "retry"}])
async def test_a_selection_without_jobs_is_refused(client: httpx.AsyncClient, body: dict[str, object]):
    assert fields(await client.post("/jobs/selected", json=body))[0].startswith("ids")


async def test_a_file_has_every_job_that_matches(client: httpx.AsyncClient, app: Hawser):
    ids = [(await app.aenqueue("send_email", {"to": f"user{number}"})).id for number in range(620)]
    await app.aenqueue("anything", {})
    answer = await client.get("/jobs/export.ndjson?task=send_email")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert 'filename="jobs.ndjson"' in answer.headers["content-disposition"]
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["id"] for line in lines] == ids[::-1]
    assert lines[-1]["payload"] == {"to": "user0"}
    assert len((await client.get("/jobs/export.ndjson?limit=7")).text.splitlines()) == 7
    table = list(csv.DictReader(io.StringIO((await client.get("/jobs/export.csv?queue=mail")).text)))
    assert [row["id"] for row in table] == ids[::-1]
    assert table[-1]["payload"] == '{"to":"user0"}'


async def test_a_file_of_several_states_has_them_newest_first(client: httpx.AsyncClient, app: Hawser):
    ids = [await in_state(app, state) for state in (State.DEAD, State.DONE, State.DEAD, State.CANCELLED)]
    lines = (await client.get("/jobs/export.ndjson?state=dead,done")).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [ids[2], ids[1], ids[0]]
    assert fields(await client.get("/jobs/export.csv?state=dead,lost")) == ["state"]


async def test_a_spreadsheet_runs_nothing_of_a_file(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.DEAD, error='=HYPERLINK("http://evil")')
    [row] = csv.DictReader(io.StringIO((await client.get("/jobs/export.csv?state=dead")).text))
    assert row["error"] == '\'=HYPERLINK("http://evil")'
    assert row["attempt"] == "1"


async def test_retries_among_what_ended_are_counted_per_queue(
    client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock
):
    """Ten jobs that each ended with their third attempt."""
    await store.beat([replace(MAIL, queues=("default",), running=MAIL.slots)])
    for _ in range(10):
        await app.tasks["anything"].using(max_attempts=3).aenqueue()
    for outcome in (Failed(Failure("no", "")), Failed(Failure("no", "")), Done()):
        clock.advance(3_600)
        claimed = await store.claim([Share("default")], 10, "w1", 600.0)
        assert len(claimed) == 10
        await store.settle([Settlement(job.id, job.lease, outcome) for job in claimed])
    why = (await client.get("/queues/default/why")).json()
    [failures] = [check for check in why["checks"] if check["check"] == "failures"]
    assert failures["text"] == "0 % of its attempts fail, and of those of jobs that ended 67 % were retries"
